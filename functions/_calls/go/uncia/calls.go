package uncia

// Invoking other functions: with AWS's SDK, or by HTTP where a stage has a URL. Only packages of
// functions that invoke others have this file, and the SDK.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// What the platform names the stage by in its log; others pass it over.
const stageHeader = "x-uncia-stage"

const maxAnswerBytes = 64 << 20

func init() {
	newCaller = func() (caller, error) { return newSDK(), nil }
}

type sdk struct {
	client *lambda.Client
	http   *http.Client
}

func newSDK() *sdk {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A fan-out keeps its connections.
	transport.MaxIdleConnsPerHost = 64
	// Before the platform closes them: a frozen function would not see that, and write into nothing.
	transport.IdleConnTimeout = 5 * time.Second
	client := &http.Client{Transport: transport}
	options := lambda.Options{
		Region:      os.Getenv("AWS_REGION"),
		HTTPClient:  client,
		Credentials: aws.CredentialsProviderFunc(credentials),
		// What is tried again would be two invocations in the rows, and one hop.
		RetryMaxAttempts: 1,
	}
	if endpoint := os.Getenv("AWS_ENDPOINT_URL_LAMBDA"); endpoint != "" {
		options.BaseEndpoint = aws.String(endpoint)
	}
	return &sdk{lambda.New(options), client}
}

func credentials(context.Context) (aws.Credentials, error) {
	key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if key == "" || secret == "" {
		return aws.Credentials{}, errors.New(
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are missing: is this function's network" +
				" set to platform?")
	}
	return aws.Credentials{
		AccessKeyID: key, SecretAccessKey: secret, SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
	}, nil
}

func (c *sdk) invoke(it call) ([]byte, string, error) {
	if it.stage.URL != "" {
		return c.post(it)
	}
	kind := types.InvocationTypeRequestResponse
	if it.isEvent {
		kind = types.InvocationTypeEvent
	}
	answer, err := c.client.Invoke(context.Background(), &lambda.InvokeInput{
		FunctionName: aws.String(it.stage.Function), Payload: it.payload, InvocationType: kind,
	}, func(options *lambda.Options) {
		options.APIOptions = append(options.APIOptions,
			smithyhttp.AddHeaderValue(stageHeader, it.name))
	})
	if err != nil {
		return nil, "", err
	}
	request, _ := requestID(answer.ResultMetadata)
	if answer.FunctionError != nil {
		return nil, request, functionError{answer.Payload}
	}
	return answer.Payload, request, nil
}

func requestID(metadata middleware.Metadata) (string, bool) {
	return awsmiddleware.GetRequestIDMetadata(metadata)
}

func (c *sdk) post(it call) ([]byte, string, error) {
	request, err := http.NewRequest("POST", it.stage.URL, bytes.NewReader(it.payload))
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("content-type", "application/json")
	request.Header.Set(stageHeader, it.name)
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	id := answer.Header.Get("x-amzn-requestid")
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err == nil && answer.StatusCode/100 != 2 {
		err = functionError{body}
		if !strings.HasPrefix(err.Error(), "stage ") {
			err = fmt.Errorf("HTTP %d: %.500s", answer.StatusCode, body)
		}
	}
	return body, id, err
}
