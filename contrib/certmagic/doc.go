// Package certmagiclock adds locks of Lockline to a storage of certmagic. Then only one instance of a web
// server at a time requests a certificate from the CA:
//
//	session, err := rlock.NewSession(rdb)
//	...
//	certmagic.Default.Storage = certmagiclock.New(session, certmagic.Default.Storage)
//
// The storage keeps the certificates as before. Only its locks are in Redis.
//
// To shut down, first stop all code that uses the storage. Then close the session, which releases its
// remaining locks.
package certmagiclock
