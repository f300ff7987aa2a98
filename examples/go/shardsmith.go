// A client of Shardsmith in one file, with the standard library alone (Go 1.19). Copy it into your project and give it
// the name of your package. main.go makes a command of it.
package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Client speaks with one service.
type Client struct {
	URL   string // as http://127.0.0.1:8000
	Token string // may be empty
}

// Problem is an answer that refuses a request (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"` // for programs: docs/reference/errors.md has all
	Detail string `json:"detail"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%s (%d): %s", p.Code, p.Status, p.Detail) }

// NewKey makes an Idempotency-Key: what is sent under one key is stored once, however often it is sent.
func NewKey() string {
	key := make([]byte, 16)
	rand.Read(key)
	return hex.EncodeToString(key)
}

// Put appends rows to a dataset, and returns their number once they are stored. They are sent while they are read, never held in
// memory; open is called again for each try. After an error the call may be repeated with the same key. The parameters
// are those of an append in docs/http.md, as url.Values{"split": {"test"}}, or nil.
func (c *Client) Put(dataset, mediaType, key string, parameters url.Values, open func() (io.ReadCloser, error)) (int64, error) {
	prepare := func(request *http.Request) error {
		content, err := open()
		request.Header.Set("Content-Type", mediaType)
		request.Header.Set("Idempotency-Key", key)
		request.Trailer = http.Header{"Content-Digest": nil} // the service compares it with what arrived
		request.Body = &digester{content, sha256.New(), request.Trailer}
		return err
	}
	var stored struct {
		Rows int64 `json:"num_records"`
	}
	err := c.call("POST", "/v1/datasets/"+dataset+"/records?"+parameters.Encode(), prepare, decode(&stored))
	return stored.Rows, err
}

// Publish makes a version of all that was appended, and returns its number once it can be read. While it is not done
// the same is asked again, which also takes over from a server that has died in the middle of it. The parameters are those of a
// publication in docs/http.md, or nil.
func (c *Client) Publish(dataset, key string, parameters url.Values) (string, error) {
	var manifest struct{ Version string }
	prepare := func(request *http.Request) error { request.Header.Set("Idempotency-Key", key); return nil }
	err := c.call("POST", "/v1/datasets/"+dataset+"/versions?"+parameters.Encode(), prepare, decode(&manifest))
	return manifest.Version, err
}

// Wait returns the number of a version, or of "latest", once it can be read. Somebody else publishes it.
func (c *Client) Wait(dataset, version string) (string, error) {
	var manifest struct{ Version string }
	err := c.call("GET", "/v1/datasets/"+dataset+"/versions/"+version, nil, decode(&manifest))
	return manifest.Version, err
}

// Rows hands each row of a split to take, as a line of JSON. After a broken connection it goes on with the next row.
func (c *Client) Rows(dataset, version, split string, take func(row []byte) error) error {
	version, err := c.Wait(dataset, version) // "latest" may become another one
	if err != nil {
		return err
	}
	taken, stop := 0, error(nil)
	prepare := func(request *http.Request) error {
		request.URL.RawQuery = fmt.Sprintf("split=%s&offset=%d", split, taken)
		return nil
	}
	err = c.call("GET", "/v1/datasets/"+dataset+"/versions/"+version+"/records", prepare, func(answer *http.Response) error {
		left, err := strconv.Atoi(answer.Header.Get("Record-Count"))
		for lines := bufio.NewReader(answer.Body); err == nil && stop == nil && left > 0; left-- {
			var row []byte
			if row, err = lines.ReadBytes('\n'); err == nil {
				taken++
				stop = take(row)
			}
		}
		return err
	})
	if err == nil {
		err = stop
	}
	return err
}

// Get downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded
// again, and what is there in part is completed. A file gets its name once its checksum is right.
func (c *Client) Get(dataset, version, folder string) error {
	version, err := c.Wait(dataset, version)
	path := "/v1/datasets/" + dataset + "/versions/" + version
	var sums []byte
	if err == nil {
		take := func(answer *http.Response) (err error) { sums, err = readWhole(answer); return err }
		err = c.call("GET", path+"/SHA256SUMS", nil, take)
	}
	if err == nil {
		err = os.MkdirAll(folder, 0o777)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(sums)), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		if err == nil && (len(sum) != 64 || filepath.Base(name) != name) {
			err = fmt.Errorf("this is no line of SHA256SUMS: %q", line)
		}
		if target := filepath.Join(folder, name); err == nil && checksum(target) != sum {
			err = c.download(path+"/files/"+name, sum, target)
		}
	}
	return err
}

func (c *Client) download(path, sum, target string) error {
	part := target + "." + sum[:16] + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	prepare := func(request *http.Request) error {
		size, err := file.Seek(0, io.SeekEnd)
		if size > 0 {
			request.Header.Set("Range", fmt.Sprintf("bytes=%d-", size))
			request.Header.Set("If-Range", `"`+sum+`"`) // a file's ETag is its checksum
		}
		return err
	}
	err = c.call("GET", path, prepare, func(answer *http.Response) error {
		if answer.StatusCode == http.StatusOK {
			file.Truncate(0)
		}
		if _, err := io.Copy(file, answer.Body); err != nil {
			return err
		}
		if has := checksum(part); has != sum {
			file.Truncate(0)
			return fmt.Errorf("%s came with the checksum %s, and not %s", target, has, sum)
		}
		return file.Sync()
	})
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusRequestedRangeNotSatisfiable {
		os.Remove(part) // it has all bytes, but wrong ones
	}
	if err == nil {
		err = os.Rename(part, target)
	}
	return err
}

func checksum(path string) string {
	sum := sha256.New()
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		_, err = io.Copy(sum, file)
	}
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

var connections = &http.Client{Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	ResponseHeaderTimeout: 2 * time.Minute, // counts once all is sent
	DisableCompression:    true,            // digests are of what is sent
}}

// call sends a request until its answer is there and taken without an error, or refuses it for good.
func (c *Client) call(method, path string, prepare func(*http.Request) error, take func(*http.Response) error) error {
	pause := 200 * time.Millisecond
	for tries := 1; ; tries++ {
		request, err := http.NewRequest(method, strings.TrimSuffix(c.URL, "/")+path, nil)
		if err == nil && c.Token != "" {
			request.Header.Set("Authorization", "Bearer "+c.Token)
		}
		if err == nil && prepare != nil {
			err = prepare(request)
		}
		if err != nil {
			return err
		}
		after := pause
		answer, err := connections.Do(request)
		if err == nil {
			seconds, unknown := time.ParseDuration(answer.Header.Get("Retry-After") + "s")
			if unknown == nil {
				after = seconds
			}
			if answer.StatusCode == http.StatusAccepted { // a publication is under way
				tries, err = 0, errors.New("not published yet")
			} else if answer.StatusCode < 300 {
				err = take(answer)
			} else {
				problem := refusal(answer)
				if err = problem; unknown != nil && !temporary[problem.Status] && problem.Code != "digest_mismatch" {
					tries = 10
				}
			}
			answer.Body.Close()
		}
		if err == nil || tries == 10 {
			return err
		}
		log.Printf("%v (again in %v)", err, after)
		time.Sleep(after)
		if pause *= 2; pause > 30*time.Second {
			pause = 30 * time.Second
		}
	}
}

var temporary = map[int]bool{408: true, 429: true, 502: true, 503: true, 504: true, 507: true}

func refusal(answer *http.Response) *Problem {
	problem := &Problem{}
	if err := decode(problem)(answer); err != nil || problem.Status != answer.StatusCode { // of a proxy
		return &Problem{answer.StatusCode, "no_problem_document", answer.Status}
	}
	return problem
}

func readWhole(answer *http.Response) ([]byte, error) {
	content, err := io.ReadAll(answer.Body)
	sum := sha256.Sum256(content)
	if said := answer.Header.Get("Repr-Digest"); len(content) == 0 || said != "" && said != digest(sum[:]) {
		err = errors.New("the answer was damaged on its way")
	}
	return content, err
}

func decode(value interface{}) func(*http.Response) error {
	return func(answer *http.Response) error {
		content, err := readWhole(answer)
		if err == nil {
			err = json.Unmarshal(content, value)
		}
		return err
	}
}

func digest(sum []byte) string { return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":" }

// digester puts the digest of a body into its trailer, once all of it is read.
type digester struct {
	io.ReadCloser
	sum     hash.Hash
	trailer http.Header
}

func (d *digester) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	d.sum.Write(p[:n])
	if err == io.EOF {
		d.trailer.Set("Content-Digest", digest(d.sum.Sum(nil)))
	}
	return n, err
}
