package main

// The store: objects by S3's API, with AWS's SDK.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Of a multipart upload; as many parts as uploadParts are in memory at a time.
const (
	partBytes   = 16 << 20
	uploadParts = 4
)

type objects struct {
	client *s3.Client
	bucket string
	prefix string
}

// newObjects returns the store's client, made once.
var newObjects = sync.OnceValues(func() (*objects, error) {
	bucket, endpoint := os.Getenv("UNCIA_STORE_BUCKET"), os.Getenv("AWS_ENDPOINT_URL_S3")
	if bucket == "" {
		return nil, errors.New("this function reaches no store: name it in its reach ([store])")
	}
	options := s3.Options{
		Region: os.Getenv("AWS_REGION"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
			}, nil
		}),
		UsePathStyle: true,
		// The function checks a digest of its own.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
	if endpoint != "" {
		options.BaseEndpoint = aws.String(endpoint)
	}
	return &objects{s3.New(options), bucket, os.Getenv("UNCIA_STORE_PREFIX")}, nil
})

// put stores what a reader gives, in parts if it is large.
func (o *objects) put(key string, body io.Reader, size int64) error {
	unsigned := s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
	uploader := manager.NewUploader(o.client, func(u *manager.Uploader) {
		// At most 10,000 parts.
		u.PartSize, u.Concurrency = max(partBytes, size/int64(manager.MaxUploadParts)+1), uploadParts
		u.ClientOptions = append(u.ClientOptions, unsigned)
	})
	_, err := uploader.Upload(context.Background(), &s3.PutObjectInput{
		Bucket: aws.String(o.bucket), Key: aws.String(key), Body: body,
	})
	if err != nil {
		return fmt.Errorf("the store does not take the object %s: %w", key, err)
	}
	return nil
}

func (o *objects) get(key string) (io.ReadCloser, error) {
	answer, err := o.client.GetObject(context.Background(), &s3.GetObjectInput{
		Bucket: aws.String(o.bucket), Key: aws.String(key),
	})
	if err != nil {
		return nil, fmt.Errorf("the store does not give the object %s: %w", key, err)
	}
	return answer.Body, nil
}

func (o *objects) remove(key string) error {
	_, err := o.client.DeleteObject(context.Background(), &s3.DeleteObjectInput{
		Bucket: aws.String(o.bucket), Key: aws.String(key),
	})
	if err != nil {
		return fmt.Errorf("the store does not remove the object %s: %w", key, err)
	}
	return nil
}
