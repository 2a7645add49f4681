package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"time"
)

func runReviews(ctx context.Context, arguments []string) error {
	var target webhook
	var when pace
	set := flag.NewFlagSet("reviews", flag.ExitOnError)
	target.addFlags(set)
	when.addFlags(set)
	count := set.Int("clients", 1, "API servers, each with connections of its own; they take turns")
	warmUp := set.Int("warm-up", 0, "calls before, one after the other, that are not counted")
	_ = set.Parse(arguments)
	if err := errors.Join(when.check(), target.open()); err != nil {
		return err
	}
	clients := make([]*http.Client, *count)
	for i := range clients {
		clients[i] = target.newClient()
	}
	when.burst *= *count
	first, counted := firstNumber(), newTally()
	call := func(number int, moment time.Time) {
		target.call(clients[number%*count], first+int64(number), moment, counted)
	}
	for number := range *warmUp {
		call(number, time.Now())
	}
	first += int64(*warmUp)
	counted.take(0)
	when.run(ctx, call)
	return printResult(counted.take(target.dials.Load()))
}
