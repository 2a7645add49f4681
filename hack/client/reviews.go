package main

import (
	"context"
	"errors"
	"flag"
	"time"
)

func runReviews(ctx context.Context, arguments []string) error {
	var target webhook
	var when pace
	set := flag.NewFlagSet("reviews", flag.ExitOnError)
	target.addFlags(set)
	when.addFlags(set)
	warmUp := set.Int("warm-up", 0, "calls before, one after the other, that are not counted")
	_ = set.Parse(arguments)
	if err := errors.Join(when.check(), target.open()); err != nil {
		return err
	}
	client, first, counted := target.newClient(), firstNumber(), newTally()
	call := func(number int, moment time.Time) {
		target.call(client, first+int64(number), moment, counted)
	}
	for number := range *warmUp {
		call(number, time.Now())
	}
	first += int64(*warmUp)
	counted.take(0)
	when.run(ctx, call)
	return printResult(counted.take(target.dials.Load()))
}
