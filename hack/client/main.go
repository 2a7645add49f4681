// Command client puts load on the webhook or on an API server and prints what came back as JSON.
//
// It is a program of its own, and not Python, so that it disturbs what it measures little and
// behaves as the API server's client does: Go's HTTP stack with the same limits.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: client reviews|jobs [flags]

  reviews  post admission reviews to a webhook, as an API server does
  jobs     create Jobs at an API server
`

var commands = map[string]func(ctx context.Context, arguments []string) error{
	"reviews": runReviews,
	"jobs":    runJobs,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	// Interrupted, it makes no more calls and prints what it has.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(2)
	}
}

func printResult(result any) error {
	return json.NewEncoder(os.Stdout).Encode(result)
}
