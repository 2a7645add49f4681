module kueue-fallback.dev/hack/client

go 1.26.0
