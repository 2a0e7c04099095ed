module programs

go 1.21
