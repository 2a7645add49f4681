package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A webhook is the server that is called, with the bodies for it.
type webhook struct {
	url        string
	authority  string
	serverName string
	timeout    time.Duration
	bodyFile   string
	bodies     templates
	tls        *tls.Config
	dials      atomic.Int64
}

func (w *webhook) addFlags(set *flag.FlagSet) {
	set.StringVar(&w.url, "url", "", "of the webhook, https://127.0.0.1:10250/mutate")
	set.StringVar(&w.authority, "ca", "", "file of the CA certificates, PEM")
	set.StringVar(&w.serverName, "server-name", "", "that the certificate must have; default: the URL's host")
	set.StringVar(&w.bodyFile, "bodies", "", "file of reviews, one a line, with "+placeholder+" in uid and name")
	set.DurationVar(&w.timeout, "timeout", 2*time.Second, "of a call, also told to the webhook")
}

func (w *webhook) open() (err error) {
	if w.bodies, err = readTemplates(w.bodyFile); err != nil {
		return err
	}
	pool, err := readAuthority(w.authority)
	if err != nil {
		return err
	}
	// The API server speaks HTTP/1.1 to webhooks behind a Service.
	w.tls = &tls.Config{RootCAs: pool, ServerName: w.serverName, NextProtos: []string{"http/1.1"}}
	target, err := url.Parse(w.url)
	if err != nil {
		return err
	}
	target.RawQuery = url.Values{"timeout": {w.timeout.String()}}.Encode()
	w.url = target.String()
	return nil
}

func readAuthority(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return pool, nil
}

// newClient returns a client with the limits of an API server's; each has connections of its own.
func (w *webhook) newClient() *http.Client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     w.tls,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.dials.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}}
}

// review is what is read of an AdmissionReview.
type review struct {
	Response struct {
		UID      string   `json:"uid"`
		Allowed  bool     `json:"allowed"`
		Patch    []byte   `json:"patch"`
		Warnings []string `json:"warnings"`
	} `json:"response"`
}

// call posts one review and enters its outcome.
func (w *webhook) call(client *http.Client, number int64, moment time.Time, into *tally) {
	body := w.bodies.body(number)
	sent := time.Now()
	text, err := w.post(client, body)
	answered := time.Now()
	var answer review
	switch {
	case err != nil:
		into.fail(kindOf(err))
	case json.Unmarshal(text, &answer) != nil:
		into.fail("not a review")
	case !strings.HasSuffix(answer.Response.UID, digits(number)):
		into.fail("the uid of another review")
	default:
		into.add(moment, sent, answered, notesOf(&answer))
	}
}

func (w *webhook) post(client *http.Client, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return text, err
}

// notesOf tells whether the Job was let in, and whether more than its metadata was changed.
func notesOf(answer *review) []string {
	var notes []string
	if !answer.Response.Allowed {
		notes = append(notes, "refused")
	}
	if len(answer.Response.Warnings) > 0 {
		notes = append(notes, "warned")
	}
	var operations []struct{ Path string }
	if json.Unmarshal(answer.Response.Patch, &operations) != nil {
		return notes
	}
	for _, operation := range operations {
		if strings.HasPrefix(operation.Path, "/spec/") {
			return append(notes, "patched")
		}
	}
	return notes
}
