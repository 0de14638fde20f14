package resources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/resources"
)

func TestDatabasePorts(t *testing.T) {
	for _, tc := range []struct {
		url  string
		want []int32
	}{
		{"postgres://u:p@db/app", []int32{5432}},
		{"postgresql://app:pa%40ss@cluster-rw.shop:5433/app", []int32{5433}},
		{"postgres://u:a:b@c@db:6432/app?sslmode=require", []int32{6432}},
		{"postgres://a:5433,b,c:5433/app", []int32{5432, 5433}},
		{"postgres://[::1]/app", []int32{5432}},
		{"postgres://[::1]:5434/app", []int32{5434}},
		{"postgres://db:5433", []int32{5433}},
		{"postgres://db?port=5435", []int32{5435}},
		{"postgres://db/app?host=x&port=1,2", []int32{1, 2}},
		{"postgres:///app", []int32{5432}},
		{"host=db port=5436 user=u", []int32{5436}},
		{"host=db port = '5437'", []int32{5437}},
		{"host=a,b port=5438,5439 x=y", []int32{5438, 5439}},
		{"host=db password=export=1", []int32{5432}},
		{"mysql://db:3306/app", nil},
		{"postgres://db:http/app", nil},
		{"postgres://db:70000/app", nil},
		{"postgres://db:0/app", nil},
	} {
		if diff := cmp.Diff(tc.want, resources.DatabasePorts(tc.url)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.url, diff)
		}
	}
}
