module forwarding

go 1.22
