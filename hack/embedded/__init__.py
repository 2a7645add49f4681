"""A cluster that is embedded in a Python process, for demonstrations and tests.

Real are all processes of ours, HTTP and TLS between them, the API server's verbs, versions,
conflicts, watches and admission by webhooks. Played are etcd (objects are in memory), rights
(everybody has all of them), schemas (of definitions only the defaults are taken), and Kueue, the
controllers of Kubernetes and the kubelets, as far as modules beside this one play them.
What Kubernetes and Kueue do is tested against the real ones, in tests/e2e.
"""
