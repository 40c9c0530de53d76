//! [`Expectations`]: connections that control packets have announced, and [`Parents`]: the connections that announced
//! those that came to be.
//!
//! A new connection looks its tuple up here, without its source port, which is unknown before. While nothing is expected,
//! that is one relaxed load; else a lookup without waiting. Announcements, ends and expiry share a mutex, for one
//! search in an ordered set each.

use crate::key::{Key, KeyHash, Rest};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use sync::{AtomicU32, Mutex, Ordering, SharedTable, lock};

/// Maximum expectations.
pub(crate) const EXPECTATIONS_MAX: usize = 65_536;
/// Maximum expectations of one connection: a further one replaces its oldest.
pub(crate) const OF_PARENT_MAX: usize = 16;
/// Lifetime.
pub(crate) const EXPECTED_MS: u64 = 30_000;
/// Expired ones that an announcement removes, at most.
const EXPIRED_AT_ONCE: usize = 8;

/// An expected connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// Original tuple of the connection that announced it.
    pub(crate) parent: Key,
    /// The parent's mark.
    pub(crate) mark: u32,
    /// The parent's labels.
    pub(crate) labels: u128,
    /// An address of the reply tuple, if the connection is translated.
    pub(crate) address: IpAddr,
    /// Whether that is the destination of replies: the source is translated.
    pub(crate) is_src: bool,
    pub(crate) expires_ms: u64,
}

/// Hashes of the tables here.
#[derive(Clone, Copy)]
struct Seeded(KeyHash);

struct Running {
    hash: KeyHash,
    state: u64,
}

impl BuildHasher for Seeded {
    type Hasher = Running;

    fn build_hasher(&self) -> Running {
        Running { hash: self.0, state: 0 }
    }
}

impl Hasher for Running {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.state = self.hash.of(&[self.state, u64::from_ne_bytes(word)]);
        }
    }
}

/// Expectations in the order of their ends.
#[derive(Default)]
struct Book {
    by_end: BTreeSet<(u64, Key)>,
    /// All expectations by parent, in the order of their ends.
    by_parent: BTreeSet<(Key, u64, Key)>,
}

/// See the module.
pub(crate) struct Expectations {
    count: AtomicU32,
    /// By tuple; the source port is 0.
    table: SharedTable<Key, Expected, Seeded>,
    book: Mutex<Book>,
}

/// There are [`EXPECTATIONS_MAX`] already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

impl Expectations {
    pub(crate) fn new(hash: KeyHash) -> Expectations {
        Expectations {
            count: AtomicU32::new(0),
            table: SharedTable::new(0, Seeded(hash)),
            book: Mutex::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The expectation of a new connection.
    #[inline]
    pub(crate) fn find(&self, key: Key, now_ms: u64) -> Option<Expected> {
        if self.is_empty() { None } else { self.look_up(key, now_ms) }
    }

    #[cold]
    fn look_up(&self, key: Key, now_ms: u64) -> Option<Expected> {
        let key = key.with_rest(Rest { src: 0, ..key.rest() });
        self.table.pin().get(&key).filter(|e| e.expires_ms > now_ms).copied()
    }

    /// Adds or renews an expectation; one of another parent stays as it is. The source port of `key` is 0.
    pub(crate) fn add(&self, key: Key, expected: Expected, now_ms: u64) -> Result<(), Full> {
        let book = &mut *lock(&self.book);
        self.remove_expired(book, now_ms, EXPIRED_AT_ONCE);
        let pinned = self.table.pin();
        match pinned.get(&key) {
            Some(old) if old.parent != expected.parent && old.expires_ms > now_ms => return Ok(()),
            Some(_) => self.remove(book, &key),
            None => {}
        }
        let own = || book.by_parent.range((expected.parent, 0, Key::MIN)..);
        let mut own = own().take_while(|(parent, ..)| *parent == expected.parent);
        let oldest = own.next().copied();
        if let Some((_, _, oldest)) = oldest.filter(|_| own.take(OF_PARENT_MAX).count() + 1 >= OF_PARENT_MAX)
        {
            self.remove(book, &oldest);
        }
        if book.by_end.len() >= EXPECTATIONS_MAX {
            return Err(Full);
        }
        pinned.insert(key, expected);
        book.by_end.insert((expected.expires_ms, key));
        book.by_parent.insert((expected.parent, expected.expires_ms, key));
        self.count.store(book.by_end.len() as u32, Ordering::Relaxed);
        Ok(())
    }

    fn remove(&self, book: &mut Book, key: &Key) {
        if let Some(old) = self.table.pin().remove(key) {
            book.by_end.remove(&(old.expires_ms, *key));
            book.by_parent.remove(&(old.parent, old.expires_ms, *key));
        }
        self.count.store(book.by_end.len() as u32, Ordering::Relaxed);
    }

    fn remove_expired(&self, book: &mut Book, now_ms: u64, max: usize) {
        for _ in 0..max {
            match book.by_end.first() {
                Some((end, key)) if *end <= now_ms => {
                    let key = *key;
                    self.remove(book, &key);
                }
                _ => return,
            }
        }
    }

    /// Removes those that are over, at most `max`.
    pub(crate) fn expire(&self, now_ms: u64, max: usize) {
        if !self.is_empty() {
            self.remove_expired(&mut lock(&self.book), now_ms, max);
        }
    }

    /// Removes those of a connection that ends.
    pub(crate) fn end(&self, parent: Key) {
        if self.is_empty() {
            return;
        }
        let book = &mut *lock(&self.book);
        let of_parent = |book: &Book| {
            let first = book.by_parent.range((parent, 0, Key::MIN)..).next();
            first.filter(|(of, ..)| *of == parent).map(|(.., key)| *key)
        };
        while let Some(key) = of_parent(book) {
            self.remove(book, &key);
        }
    }

    /// All of them, those that end first at the beginning.
    pub(crate) fn all(&self, now_ms: u64) -> Vec<(Key, Expected)> {
        let keys: Vec<Key> = lock(&self.book).by_end.iter().map(|(_, key)| *key).collect();
        let pinned = self.table.pin();
        let live = keys.into_iter().filter_map(|key| Some((key, *pinned.get(&key)?)));
        live.filter(|(_, expected)| expected.expires_ms > now_ms).collect()
    }
}

/// The connection that announced a related one.
#[derive(Clone, Copy)]
struct Parent {
    /// Original tuple of the related connection: its record may have been used again.
    child: Key,
    parent: Key,
}

/// See the module. By the number of the related connection's record.
pub(crate) struct Parents(SharedTable<(bool, u32), Parent, Seeded>);

impl Parents {
    pub(crate) fn new(hash: KeyHash) -> Parents {
        Parents(SharedTable::new(0, Seeded(hash)))
    }

    /// Notes the parent of a connection that is not in the index yet.
    pub(crate) fn add(&self, number: u32, child: Key, parent: Key) {
        self.0.pin().insert((child.is_v6(), number), Parent { child, parent });
    }

    /// Forgets the parent of a connection that ends, before its record is free.
    pub(crate) fn end(&self, number: u32, child: Key) {
        self.0.pin().remove(&(child.is_v6(), number));
    }

    /// Original tuple of the parent. Without waiting.
    pub(crate) fn find(&self, number: u32, child: Key) -> Option<Key> {
        let pinned = self.0.pin();
        pinned.get(&(child.is_v6(), number)).filter(|p| p.child == child).map(|p| p.parent)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests;
