"""A cluster that is embedded in a Python process, for demonstrations and tests.

Real are all processes of ours, HTTP and TLS between them, the API server's verbs, versions,
conflicts, watches and admission by webhooks, as far as tests/api_contract.py says what a real one
does. Played are etcd (objects are in memory), rights (everybody has all of them), schemas (of
definitions only the defaults are taken), conditions in CEL and admission policies (there are none),
and Kueue, the controllers of Kubernetes and the kubelets, as far as modules here play them.
"""
