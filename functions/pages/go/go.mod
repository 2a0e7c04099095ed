module pages

go 1.22
