package explore

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/lockline/lockline/internal/inner"
)

// A fingerprint identifies a state by everything that can affect the next steps. This includes the data in
// Redis, the requests and messages in flight, and the actors. It also includes the memory of each session,
// and the stack of each goroutine. A walker reads the memory by reflection, beginning at the session. So this
// file need not be changed when the engine changes.
//
// Two states with the same fingerprint can still differ, and then the explorer skips orders that it should
// try:
//   - Of times, only their order and their cell of 10 ms count, because the pauses between the copies of a
//     request are random.
//   - Of a goroutine, the functions on its stack count, but not their variables. The session refers to nearly
//     everything that matters in these variables.
//   - Of channels, only the number of values counts, and of functions, only whether they are nil. Mutexes and
//     types of other modules do not count, except for times, atomic values and the end of contexts.
//
// Conversely, two states can have different fingerprints although they differ in nothing that matters. Then
// the explorer only takes longer.
type fingerprint [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// cell is the length of a cell of time in microseconds, see fingerprint.
const cell = 10_000

// fingerprint returns the fingerprint of the present state. All goroutines must have come to rest. The caller
// must not hold run.mu.
func (r *run) fingerprint() fingerprint {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := &walker{r: r, now: r.now(), seen: map[visit]int{}, names: map[unsafe.Pointer]string{}}
	for _, a := range r.actors {
		if a.ctx != nil {
			k.names[reflect.ValueOf(a.ctx).UnsafePointer()] = a.name
		}
	}
	k.word("run", r.left.list()...)
	k.word("stalled", int64(r.stalled/time.Millisecond)/(cell/1000))
	if r.world.Detours > 0 { // without a bound, postponed steps are tried like any other steps
		for _, name := range slices.Sorted(maps.Keys(r.postponed)) {
			k.word(name)
		}
	}
	k.word("operator", int64(r.setBack), r.limit)
	k.time(r.granted)
	for _, s := range r.lost {
		k.time(s.token)
	}
	k.time(r.token)
	k.time(r.excluded)
	k.data()
	k.network()
	for _, a := range r.actors {
		k.word(a.name, int64(a.at), int64(a.phase), truth(a.canceled), truth(a.contended),
			truth(a.hold != nil && a.lives()), truth(a.inner != nil))
		if a.hold != nil {
			k.time(a.hold.Token())
		}
		for _, other := range a.after {
			k.text(other.name)
		}
	}
	for _, p := range r.processes {
		k.word(p.letter, truth(p.away), truth(p.closed), truth(p.gone), truth(p.slow))
		k.value(reflect.ValueOf(inner.Session(p.session)))
	}
	k.goroutines()
	text := k.end()
	return fingerprint{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text)}
}

// list returns all numbers of f.
func (f Faults) list() (all []int64) {
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		all = append(all, v.Field(i).Int())
	}
	return all
}

// truth returns 1 for true and 0 for false.
func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A walker writes a state as bytes. For a pointer, it writes the number of the object. The objects are
// numbered in the order in which the walker finds them.
type walker struct {
	r     *run
	now   int64
	b     []byte
	seen  map[visit]int             // numbers of the objects
	names map[unsafe.Pointer]string // names of actors, by the addresses of their contexts
	times []stamp
}

// A visit identifies an object by its address and its type. The address is not enough, because a structure
// and its first field have the same one.
type visit struct {
	at unsafe.Pointer
	of reflect.Type
}

// A stamp is a time in microseconds since 1970, and its place in the bytes. There, end writes the cell of the
// time, relative to the present cell, and the rank of the time among all times. Tokens are such numbers, too.
// Tokens of the same cell still differ in their rank.
type stamp struct {
	at    int
	value int64
}

// word writes a name and numbers.
func (k *walker) word(name string, values ...int64) {
	k.b = append(append(k.b, name...), 0)
	for _, v := range values {
		k.b = binary.AppendVarint(k.b, v)
	}
}

// time writes a time or a token.
func (k *walker) time(micro int64) {
	k.times = append(k.times, stamp{len(k.b), micro})
	k.b = append(k.b, 0, 0, 0, 0, 0, 0)
}

// end fills in the times, and returns the bytes.
func (k *walker) end() []byte {
	var all []int64
	for _, t := range k.times {
		all = append(all, t.value)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, t := range k.times {
		rank, _ := slices.BinarySearch(all, t.value)
		// Each run begins at the beginning of a cell, so the cells of different runs can be compared.
		binary.LittleEndian.PutUint32(k.b[t.at:], uint32(t.value/cell-k.now/cell))
		binary.LittleEndian.PutUint16(k.b[t.at+4:], uint16(rank))
	}
	return k.b
}

// integer writes a number. A number of a certain size counts as a time.
func (k *walker) integer(n int64) {
	switch {
	case n > 1e17 || n < -1e17: // a time in nanoseconds since wire.epoch, or a constant
		k.b = binary.AppendVarint(k.b, n/(cell*1000))
	case n > 1e14 && n < 1e16: // a time in microseconds since 1970, or a token
		k.time(n)
	default:
		k.b = binary.AppendVarint(k.b, n)
	}
}

// text writes a text. A number of 15 digits in the text counts as a time or a token.
func (k *walker) text(s string) {
	s = k.r.plain(s)
	k.b = binary.AppendUvarint(k.b, uint64(len(s)))
	for len(s) > 0 {
		i := strings.IndexFunc(s, digit)
		if i < 0 {
			i = len(s)
		}
		k.b = append(k.b, s[:i]...)
		s = s[i:]
		n := 0
		for n < len(s) && digit(rune(s[n])) {
			n++
		}
		if n == 15 { // microseconds since 1970, for times from 1973 to 2001; a bubble begins in 2000
			v, _ := strconv.ParseInt(s[:n], 10, 64)
			k.time(v)
		} else {
			k.b = append(k.b, s[:n]...)
		}
		s = s[n:]
	}
}

func digit(c rune) bool { return '0' <= c && c <= '9' }

// data writes the data in Redis.
func (k *walker) data() {
	space := k.r.data()
	for _, key := range space.Keys() {
		k.text(key)
		k.time(space.Expires(key) * 1000)
		hash := space.Hash(key)
		fields := make([]string, 0, len(hash))
		for f := range hash {
			fields = append(fields, f)
		}
		slices.Sort(fields)
		for _, f := range fields {
			k.text(f)
			k.text(hash[f])
		}
		for _, m := range space.Members(key) {
			k.text(m)
			k.integer(int64(space.Scores(key)[m]))
		}
	}
}

// network writes the requests, and the messages that have not arrived.
func (k *walker) network() {
	r := k.r
	for _, all := range [][]*request{r.requests, r.late} {
		all := slices.Clone(all)
		slices.SortStableFunc(all, func(a, b *request) int { return cmp.Compare(a.label, b.label) })
		k.word("requests", int64(len(all)))
		for _, q := range all {
			k.word(q.label, truth(q.ran))
			for _, c := range q.commands {
				k.text(strings.Join(c.argv, " "))
				k.text(c.reply)
			}
		}
	}
	for _, p := range r.processes {
		c := p.subscription
		if c == nil {
			continue
		}
		k.word("subscription", truth(c.ended), int64(len(c.wanted)), int64(len(c.channels)))
		for _, m := range c.queue {
			k.text(m.Text)
		}
	}
}

// goroutines writes a hash of the stack of each goroutine that runs code of the library, except for the
// explorer's own goroutine.
func (k *walker) goroutines() {
	records := make([]runtime.StackRecord, 200)
	n, ok := runtime.GoroutineProfile(records)
	if !ok {
		panic("explore: too many goroutines")
	}
	var hashes []uint64
	for i := range n {
		stack := records[i].Stack()
		has := func(p part) bool {
			return slices.ContainsFunc(stack, func(pc uintptr) bool { return partOf(pc) == p })
		}
		if has(library) && !has(explorers) {
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(stack))),
				len(stack)*int(unsafe.Sizeof(uintptr(0))))
			hashes = append(hashes, maphash.Bytes(seeds[0], bytes))
		}
	}
	slices.Sort(hashes)
	for _, h := range hashes {
		k.b = binary.LittleEndian.AppendUint64(k.b, h)
	}
}

// A part is the part of the program to which a function belongs.
type part uint8

const (
	others part = iota
	library
	explorers
)

var parts = map[uintptr]part{} // the results of partOf, by address

// partOf returns the part to which the code at an address belongs.
func partOf(pc uintptr) part {
	p, ok := parts[pc]
	if !ok {
		f := runtime.FuncForPC(pc)
		switch {
		case f == nil:
		case strings.Contains(f.Name(), "/proof/explore.(*explorer)"):
			p = explorers
		case strings.HasPrefix(f.Name(), module):
			p = library
		}
		parts[pc] = p
	}
	return p
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	contextType  = reflect.TypeFor[context.Context]()
)

// module is the beginning of the import paths of all packages of the library.
const module = "github.com/lockline/lockline"

// ours reports whether a type belongs to the library, or to no package.
func ours(t reflect.Type) bool {
	path := t.PkgPath()
	return path == "" || strings.HasPrefix(path, module)
}

// value writes a value of any type.
func (k *walker) value(v reflect.Value) {
	switch t := v.Type(); v.Kind() {
	case reflect.Bool:
		k.b = append(k.b, byte(truth(v.Bool())))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if t == durationType && v.Int() < 1e17 && v.Int() > -1e17 {
			k.b = binary.AppendVarint(k.b, v.Int()/(cell*1000))
			return
		}
		k.integer(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		k.b = binary.AppendUvarint(k.b, v.Uint())
	case reflect.Float32, reflect.Float64:
		k.integer(int64(v.Float()))
	case reflect.String:
		k.text(v.String())
	case reflect.Chan:
		n := -1
		if !v.IsNil() {
			n = v.Len()
		}
		k.b = binary.AppendVarint(k.b, int64(n))
	case reflect.Func, reflect.UnsafePointer:
		k.b = append(k.b, byte(truth(v.IsNil())))
	case reflect.Slice, reflect.Array:
		k.b = binary.AppendUvarint(k.b, uint64(v.Len()))
		for i := range v.Len() {
			k.value(v.Index(i))
		}
	case reflect.Map:
		k.entries(v)
	case reflect.Interface:
		if v.IsNil() {
			k.b = append(k.b, 0)
			return
		}
		if t == contextType {
			k.context(v)
		}
		k.b = append(append(k.b, v.Elem().Type().String()...), 0)
		k.value(v.Elem())
	case reflect.Pointer:
		k.pointer(v)
	case reflect.Struct:
		k.structure(v)
	}
}

// pointer writes a pointer. If the walker has not written the object of the pointer before, pointer writes
// the object, too.
func (k *walker) pointer(v reflect.Value) {
	if v.IsNil() {
		k.b = append(k.b, 0)
		return
	}
	k.b = append(k.b, 1)
	if name, ok := k.names[v.UnsafePointer()]; ok {
		k.word(name)
		return
	}
	if v.Elem().Kind() == reflect.Struct && !walked(v.Elem().Type()) {
		return
	}
	if k.known(v.UnsafePointer(), v.Type()) {
		return
	}
	k.value(v.Elem())
}

// known writes the number of an object, and reports whether the object was found before.
func (k *walker) known(at unsafe.Pointer, of reflect.Type) bool {
	n, ok := k.seen[visit{at, of}]
	if !ok {
		n = len(k.seen)
		k.seen[visit{at, of}] = n
	}
	k.b = binary.AppendUvarint(k.b, uint64(n))
	return ok
}

// walked reports whether the walker looks into structures of a type.
func walked(t reflect.Type) bool {
	return ours(t) || t == timeType || t.PkgPath() == "sync/atomic"
}

// structure writes the fields of a structure.
func (k *walker) structure(v reflect.Value) {
	t := v.Type()
	switch {
	case t == timeType:
		k.time(micro(v))
		return
	case t.PkgPath() == "sync/atomic":
		k.atomic(v)
		return
	case !ours(t):
		return
	}
	for i := range v.NumField() {
		k.value(v.Field(i))
	}
}

// micro returns a time.Time in microseconds since 1970.
func micro(v reflect.Value) int64 {
	const yearOne, year1885 = 62135596800, (1884*365 + 1884/4 - 1884/100 + 1884/400) * 86400
	wall, ext := v.Field(0).Uint(), v.Field(1).Int()
	seconds := ext
	if wall>>63 != 0 {
		seconds = year1885 + int64(wall<<1>>31)
	}
	return (seconds-yearOne)*1e6 + int64(wall&(1<<30-1))/1000
}

// atomic writes a value of package sync/atomic.
func (k *walker) atomic(v reflect.Value) {
	f := v.FieldByName("v")
	if f.IsValid() && f.Kind() != reflect.UnsafePointer && f.Kind() != reflect.Interface {
		k.value(f)
		return
	}
	if v.CanAddr() && strings.HasPrefix(v.Type().Name(), "Pointer[") {
		load := reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).MethodByName("Load")
		k.value(load.Call(nil)[0])
	}
}

// context writes whether a context has ended.
func (k *walker) context(v reflect.Value) {
	if !v.CanAddr() {
		return
	}
	ctx := *(*context.Context)(unsafe.Pointer(v.UnsafeAddr()))
	k.b = append(k.b, byte(truth(ctx.Err() != nil)))
}

// entries writes a map in the order of its keys.
func (k *walker) entries(v reflect.Value) {
	k.b = binary.AppendVarint(k.b, int64(v.Len()))
	type entry struct {
		order string
		key   reflect.Value
	}
	var all []entry
	for _, key := range v.MapKeys() {
		if key.Kind() == reflect.String {
			all = append(all, entry{k.r.plain(key.String()), key})
			continue
		}
		apart := &walker{r: k.r, now: k.now, seen: map[visit]int{}, names: k.names}
		for at, n := range k.seen {
			apart.seen[at] = n
		}
		apart.value(key)
		all = append(all, entry{string(apart.end()), key})
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.order, b.order) })
	for _, e := range all {
		k.value(e.key)
		k.value(v.MapIndex(e.key))
	}
}
