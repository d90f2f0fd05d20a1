// Package certmagiclock adds locks of Lockline to a storage of certmagic, so that of all instances of a web
// server one at a time asks the CA for a certificate:
//
//	session, err := rlock.NewSession(rdb)
//	...
//	certmagic.Default.Storage = certmagiclock.New(session, certmagic.Default.Storage)
//
// The storage keeps the certificates as before. Only its locks are in Redis.
//
// To shut down, end what uses the storage, and then close the session. It gives back the locks that are left.
package certmagiclock
