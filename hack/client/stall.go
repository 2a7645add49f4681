package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// startOfHello is the start of a TLS record that holds a ClientHello.
var startOfHello = []byte{0x16, 0x03, 0x01}

// A stall is connections that ask for patience; one that the server closes is opened again.
type stall struct {
	target  *webhook
	address string
	drip    time.Duration
	opened  atomic.Int64
	closed  atomic.Int64
	refused atomic.Int64
}

// stallResult has the first review on a connection of its own, handshake included, and the others.
type stallResult struct {
	Opened       int64          `json:"opened"`
	Closed       int64          `json:"closedByServer"`
	Refused      int64          `json:"refused"`
	First        float64        `json:"first"`
	Latency      quantiles      `json:"latency"`
	Errors       map[string]int `json:"errors"`
	NewLatency   quantiles      `json:"newConnectionLatency"`
	NewErrors    map[string]int `json:"newConnectionErrors"`
	ReviewsTimed int            `json:"reviews"`
}

func runStall(ctx context.Context, arguments []string) error {
	var target webhook
	held := stall{target: &target}
	set := flag.NewFlagSet("stall", flag.ExitOnError)
	target.addFlags(set)
	silent := set.Int("silent", 0, "connections that shake hands and then say nothing")
	handshakes := set.Int("half-handshakes", 0, "connections that send three bytes of a handshake")
	bodies := set.Int("half-bodies", 0, "connections that send half a review, then drip")
	set.DurationVar(&held.drip, "drip", time.Second, "between two bytes of a half-sent body")
	settle := set.Duration("settle", time.Second, "from the last connection to the first review")
	reviews := set.Int("reviews", 20, "to time on a kept connection, and as many on new ones")
	every := set.Duration("every", 100*time.Millisecond, "between two reviews")
	_ = set.Parse(arguments)
	if err := errors.Join(target.open(), held.findAddress()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var connections sync.WaitGroup
	held.start(ctx, &connections, *silent, held.beSilent)
	held.start(ctx, &connections, *handshakes, held.shakeHalf)
	held.start(ctx, &connections, *bodies, held.sendHalf)
	sleepUntil(ctx, time.Now().Add(*settle))
	found := held.timeReviews(ctx, *reviews, *every)
	stop()
	connections.Wait()
	return printResult(found)
}

func (s *stall) findAddress() error {
	target, err := url.Parse(s.target.url)
	if err != nil {
		return err
	}
	s.address = target.Host
	if s.target.serverName == "" {
		s.target.tls.ServerName = target.Hostname()
	}
	return nil
}

// start opens connections and returns when each was opened, or refused, once.
func (s *stall) start(
	ctx context.Context, all *sync.WaitGroup, count int, use func(context.Context, net.Conn) error,
) {
	var first sync.WaitGroup
	for range count {
		first.Add(1)
		once := sync.OnceFunc(first.Done)
		all.Go(func() {
			for ctx.Err() == nil {
				s.hold(ctx, use, once)
			}
		})
	}
	first.Wait()
}

// hold opens one connection and keeps it until the server closes it.
func (s *stall) hold(
	ctx context.Context, use func(context.Context, net.Conn) error, isOpen func(),
) {
	defer isOpen()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		s.refused.Add(1)
		sleepUntil(ctx, time.Now().Add(100*time.Millisecond))
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s.opened.Add(1)
	isOpenSoon := time.AfterFunc(500*time.Millisecond, isOpen)
	defer isOpenSoon.Stop()
	if use(ctx, conn) != nil && ctx.Err() == nil {
		s.closed.Add(1)
	}
}

func (s *stall) beSilent(ctx context.Context, conn net.Conn) error {
	secured := tls.Client(conn, s.target.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		return err
	}
	return waitForEnd(secured)
}

func (s *stall) shakeHalf(_ context.Context, conn net.Conn) error {
	if _, err := conn.Write(startOfHello); err != nil {
		return err
	}
	return waitForEnd(conn)
}

func (s *stall) sendHalf(ctx context.Context, conn net.Conn) error {
	secured := tls.Client(conn, s.target.tls)
	body := s.target.bodies.body(firstNumber())
	half := bytes.NewBuffer(nil)
	fmt.Fprintf(half, "POST /mutate HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", s.address, len(body))
	half.Write(body[:len(body)/2])
	if _, err := secured.Write(half.Bytes()); err != nil {
		return err
	}
	for next := range len(body) / 2 {
		if !sleepUntil(ctx, time.Now().Add(s.drip)) {
			return nil
		}
		if _, err := secured.Write(body[len(body)/2+next:][:1]); err != nil {
			return err
		}
	}
	return nil
}

// waitForEnd returns when the server has closed the connection.
func waitForEnd(conn net.Conn) error {
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (s *stall) timeReviews(ctx context.Context, count int, every time.Duration) stallResult {
	number, kept, fresh := firstNumber(), newTally(), newTally()
	keeping := s.target.newClient()
	var first float64
	for i := range count {
		started := time.Now()
		s.target.call(keeping, number+2*int64(i), started, kept)
		if i == 0 {
			first = rounded(milliseconds(time.Since(started)))
		}
		unused := s.target.newClient()
		s.target.call(unused, number+2*int64(i)+1, time.Now(), fresh)
		unused.CloseIdleConnections()
		sleepUntil(ctx, started.Add(every))
	}
	onKept, onNew := kept.take(0), fresh.take(0)
	return stallResult{
		Opened:       s.opened.Load(),
		Closed:       s.closed.Load(),
		Refused:      s.refused.Load(),
		First:        first,
		Latency:      onKept.Latency,
		Errors:       onKept.Errors,
		NewLatency:   onNew.Latency,
		NewErrors:    onNew.Errors,
		ReviewsTimed: onKept.Calls + onNew.Calls,
	}
}
