package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	queueLabel         = "kueue.x-k8s.io/queue-name"
	decisionAnnotation = "kueue-fallback.dev/decision"
	warningStart       = `299 - "kueue-fallback: `
)

// An apiServer is where Jobs are created, and what they are.
type apiServer struct {
	url         string
	authority   string
	certificate string
	key         string
	tokenFile   string
	namespace   string
	bodyFile    string
	dryRun      bool
	keepEvery   int64
	timeout     time.Duration

	token  string
	bodies templates
	client *http.Client
}

func (a *apiServer) addFlags(set *flag.FlagSet) {
	set.StringVar(&a.url, "server", "", "URL of the API server")
	set.StringVar(&a.authority, "ca", "", "file of its CA certificates, PEM")
	set.StringVar(&a.certificate, "cert", "", "file of a client certificate, PEM")
	set.StringVar(&a.key, "key", "", "file of its private key, PEM")
	set.StringVar(&a.tokenFile, "token-file", "", "file of a bearer token")
	set.StringVar(&a.namespace, "namespace", "default", "of the Jobs")
	set.StringVar(&a.bodyFile, "bodies", "", "file of Jobs, one a line, with "+placeholder+" in the name")
	set.BoolVar(&a.dryRun, "dry-run", false, "on the server: nothing is kept")
	set.Int64Var(&a.keepEvery, "keep-every", 1, "keep one Job of so many, the others are dry runs")
	set.DurationVar(&a.timeout, "timeout", 40*time.Second, "of a call")
}

func (a *apiServer) open() (err error) {
	if a.bodies, err = readTemplates(a.bodyFile); err != nil {
		return err
	}
	pool, err := readAuthority(a.authority)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: pool}
	if a.certificate != "" {
		pair, err := tls.LoadX509KeyPair(a.certificate, a.key)
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if a.tokenFile != "" {
		text, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return err
		}
		a.token = strings.TrimSpace(string(text))
	}
	// HTTP/2, as kubectl and every controller speak it.
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	a.client = &http.Client{Transport: transport, Timeout: a.timeout}
	return nil
}

// A job is what is read of a created one.
type job struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// create creates one Job, enters the outcome and returns its name, "" when there is none now.
func (a *apiServer) create(number int64, moment time.Time, into *tally) string {
	path := fmt.Sprintf("/apis/batch/v1/namespaces/%s/jobs", a.namespace)
	dryRun := a.dryRun || number%a.keepEvery != 0
	if dryRun {
		path += "?dryRun=All"
	}
	body := a.bodies.body(number)
	sent := time.Now()
	text, header, err := a.send(http.MethodPost, path, body)
	answered := time.Now()
	var created job
	if err == nil {
		err = json.Unmarshal(text, &created)
	}
	if err != nil {
		into.fail(kindOf(err))
		return ""
	}
	into.add(moment, sent, answered, notesOfJob(&created, header))
	if dryRun {
		return ""
	}
	return created.Metadata.Name
}

func notesOfJob(created *job, header http.Header) []string {
	notes := []string{"queue " + created.Metadata.Labels[queueLabel]}
	if created.Metadata.Annotations[decisionAnnotation] != "" {
		notes = append(notes, "decided")
	}
	for _, warning := range header.Values("Warning") {
		if strings.HasPrefix(warning, warningStart) {
			return append(notes, "warned")
		}
	}
	return notes
}

func (a *apiServer) delete(name string, into *tally) {
	path := fmt.Sprintf("/apis/batch/v1/namespaces/%s/jobs/%s", a.namespace, name)
	started := time.Now()
	_, _, err := a.send(http.MethodDelete, path, []byte(`{"propagationPolicy":"Background"}`))
	if err != nil {
		into.fail("deleting: " + kindOf(err))
		return
	}
	into.add(started, started, time.Now(), nil)
}

func (a *apiServer) send(method, path string, body []byte) ([]byte, http.Header, error) {
	request, err := http.NewRequest(method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = refusal(response.StatusCode, text)
	}
	return text, response.Header, err
}

func refusal(status int, text []byte) error {
	var said struct{ Message string }
	_ = json.Unmarshal(text, &said)
	return fmt.Errorf("status %d: %.200s", status, said.Message)
}
