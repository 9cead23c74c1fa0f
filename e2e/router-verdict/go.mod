module trustplane.dev/router-verdict

go 1.26
