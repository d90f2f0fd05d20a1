package main

import (
	"testing"
)

func TestDoctorJudgesWhatServersRarelyAre(t *testing.T) {
	for name, test := range map[string]struct {
		check func(facts) finding
		info  map[string]string
		want  status
	}{
		"Redis 5":              {checkVersion, map[string]string{"redis_version": "5.0.14"}, failure},
		"Redis 6.0":            {checkVersion, map[string]string{"redis_version": "6.0.20"}, failure},
		"Redis 6.2":            {checkVersion, map[string]string{"redis_version": "6.2.14"}, fine},
		"Redis 8.0":            {checkVersion, map[string]string{"redis_version": "8.0.2"}, fine},
		"Valkey":               {checkVersion, map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"}, fine},
		"Cluster, unasked":     {checkCluster, map[string]string{"cluster_enabled": "1"}, unknown},
		"append-only file":     {checkPersistence, map[string]string{"aof_enabled": "1", "aof_last_write_status": "err"}, failure},
		"a replica that syncs": {checkReplication, map[string]string{"role": "master", "connected_slaves": "1", "slave0": "ip=a,port=1,state=wait_bgsave,offset=0,lag=0"}, warning},
		"a replica that lags":  {checkReplication, map[string]string{"role": "master", "connected_slaves": "1", "slave0": "ip=a,port=1,state=online,offset=0,lag=11"}, warning},
	} {
		if got := test.check(facts{info: test.info}); got.Status != test.want || got.Status != fine && got.Do == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
