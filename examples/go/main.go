// The client as a command.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
)

func main() {
	c := &Client{URL: or(os.Getenv("SHARDSMITH_CLIENT_URL"), "http://127.0.0.1:8000"), Token: os.Getenv("SHARDSMITH_CLIENT_TOKEN")}
	args := append(os.Args[1:], make([]string, 6)...) // what is left out is empty
	answer, err := "", errors.New("put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]],"+
		" wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER")
	put, _ := url.ParseQuery(args[5])
	publish, _ := url.ParseQuery(args[3])
	switch args[0] {
	case "put":
		var rows int64
		rows, err = c.Put(args[1], or(args[3], "application/x-ndjson"), or(args[4], NewKey()), put, func() (io.ReadCloser, error) {
			if _, err := os.Stdin.Stat(); args[2] == "-" {
				return os.Stdin, err // it is closed once it was sent
			}
			return os.Open(args[2])
		})
		answer = fmt.Sprintf("%d rows", rows)
	case "publish":
		answer, err = c.Publish(args[1], or(args[2], NewKey()), publish)
	case "wait":
		answer, err = c.Wait(args[1], args[2])
	case "rows":
		take := func(row []byte) error { _, err := os.Stdout.Write(row); return err }
		err = c.Rows(args[1], args[2], or(args[3], "train"), take)
	case "get":
		answer, err = args[3], c.Get(args[1], args[2], args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if answer != "" {
		fmt.Println(answer)
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
