package main

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// placeholder stands, in a template, where each body has its own number, always of 12 digits.
const placeholder = "#NUMBER#"

// templates are bodies, cut at the placeholders.
type templates [][][]byte

// readTemplates reads a file of one JSON object a line.
func readTemplates(path string) (templates, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found templates
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			found = append(found, bytes.Split(line, []byte(placeholder)))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s holds no template", path)
	}
	return found, nil
}

// body returns the body with this number; the templates take turns.
func (t templates) body(number int64) []byte {
	return bytes.Join(t[number%int64(len(t))], []byte(digits(number)))
}

func digits(number int64) string {
	return fmt.Sprintf("%012d", number)
}

// firstNumber differs from run to run, so that no two runs send the same name.
func firstNumber() int64 {
	return time.Now().UnixMicro() / 100 % 1_000_000_000_000
}
