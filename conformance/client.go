// Serializes a tensor, appends rows, publishes them, reads them back, and follows a problem.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"

	"conformance/shardsmith"
)

func require(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	configuration := shardsmith.NewConfiguration()
	configuration.Servers = shardsmith.ServerConfigurations{{URL: os.Args[1]}}
	client := shardsmith.NewAPIClient(configuration)
	ctx, dataset := context.Background(), os.Args[2]

	tensor := shardsmith.TensorsBody{Data: []float64{1.5, 2.5}}
	tensor.SetDtype("float32")
	proto, _, err := client.TensorsAPI.SerializeTensors(ctx).TensorsBody(tensor).To("tensorproto").Execute()
	require(err)
	content, err := os.ReadFile(proto.Name())
	require(err)
	require(os.Remove(proto.Name()))
	if hex.EncodeToString(content) != os.Args[3] {
		log.Fatalf("another tensor: %x", content)
	}

	var rows []map[string]interface{}
	require(json.Unmarshal([]byte(os.Args[4]), &rows))
	body := shardsmith.RowsBody{Instances: rows}
	appended, _, err := client.DatasetsAPI.AppendRecords(ctx, dataset).RowsBody(body).Execute()
	require(err)
	if appended.Append == nil || appended.Append.NumRecords != int64(len(rows)) {
		log.Fatal("not all rows were appended")
	}

	version, _, err := client.DatasetsAPI.PublishVersion(ctx, dataset).Execute()
	require(err)
	if version.Splits["train"].NumRecords != int64(len(rows)) {
		log.Fatal("not all rows were published")
	}

	lines, _, err := client.VersionsAPI.ReadRecords(ctx, dataset, version.Version).To("ndjson").Execute()
	require(err)
	text, err := os.ReadFile(lines.Name())
	require(err)
	require(os.Remove(lines.Name()))
	var read []map[string]interface{}
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var row map[string]interface{}
		require(json.Unmarshal(line, &row))
		read = append(read, row)
	}
	if !reflect.DeepEqual(read, rows) {
		log.Fatalf("other rows: %v", read)
	}

	wrong := shardsmith.RowsBody{Instances: []map[string]interface{}{{"label": "text"}}}
	_, _, err = client.DatasetsAPI.AppendRecords(ctx, dataset).RowsBody(wrong).Execute()
	var refused *shardsmith.GenericOpenAPIError
	if !errors.As(err, &refused) {
		log.Fatalf("not refused: %v", err)
	}
	problem, ok := refused.Model().(shardsmith.Problem)
	if !ok || problem.Status != 422 || problem.GetFeature() != "label" {
		log.Fatalf("not told what was wrong: %s", refused.Body())
	}
	later := bytes.Replace(refused.Body(), []byte("inexact_integer"), []byte("of_a_later_release"), 1)
	var unknown shardsmith.Problem
	if err := json.Unmarshal(later, &unknown); err != nil || *unknown.Code.String != "of_a_later_release" {
		log.Fatalf("a code of a later release is not read: %v", err)
	}
	fmt.Printf("%d rows of %s %s, then %s\n", len(read), dataset, version.Version, *problem.Code.ErrorCode)
}
