module arraysum

go 1.21
