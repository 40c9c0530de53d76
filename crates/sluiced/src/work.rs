//! Work that takes too long for the main loop: a thread computes the reply, and the main loop continues.
//!
//! A long reply is sent while it is computed, in parts: neither the thread nor the main loop holds the whole. The thread waits
//! while the requester does not read.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use sync::{Mutex, MutexGuard, Parker, Unparker, lock};
use sys::confine::Kind;

/// Maximum threads working or waiting for their turn.
const WORKERS_MAX: usize = 16;
/// Bytes of a part, at most, and those from which a reply is sent in parts.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// Parts that wait for the main loop, at most.
const PARTS_MAX: usize = 4;
/// Time after which a thread gives up a requester that reads nothing.
const UNREAD: Duration = Duration::from_secs(60);
/// Interval of looking for the end of a requester.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The threads of one daemon, which take turns: one reply is computed at a time. Those that send parts need no turn.
#[derive(Default)]
pub struct Workers(Arc<Mutex<()>>);

/// A reply, or a part of it.
#[derive(PartialEq, Eq, Debug)]
pub enum ReplyPart {
    /// The next part of the text, as the contents of a JSON string.
    Text(Vec<u8>),
    /// The next part of the JSON of a value.
    Json(Vec<u8>),
    /// The whole reply, or after parts their end: an empty text, or the reason why the rest is missing.
    End(Result<String, String>),
}

/// A reply in progress.
pub struct Work {
    parts: Receiver<ReplyPart>,
    /// Wakes the thread once a part was taken.
    taken: Unparker,
    /// While this exists, the requester waits.
    _wanted: Arc<()>,
}

/// The requester, as the thread sees it.
pub(crate) struct Requester<'a> {
    parts: SyncSender<ReplyPart>,
    taken: Parker,
    wanted: Weak<()>,
    turn: RefCell<Option<MutexGuard<'a, ()>>>,
    unread: Duration,
}

impl Requester<'_> {
    /// Whether it still waits.
    pub(crate) fn waits(&self) -> bool {
        Weak::strong_count(&self.wanted) > 0
    }

    /// Sends a part of the text. Waits until there is room, without a turn. `false`: the requester is gone, or reads nothing.
    pub(crate) fn send(&self, text: &str) -> bool {
        self.turn.take();
        self.send_text(text)
    }

    /// Sends a part of the JSON of a value, as [`Requester::send`] does.
    pub(crate) fn send_json(&self, json: &str) -> bool {
        self.turn.take();
        self.pass(ReplyPart::Json(json.as_bytes().to_vec()))
    }

    fn send_text(&self, text: &str) -> bool {
        // JSON of a string is never refused.
        let quoted = serde_json::to_string(text).unwrap_or_default().into_bytes();
        let contents = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        self.pass(ReplyPart::Text(contents.to_vec()))
    }

    fn pass(&self, part: ReplyPart) -> bool {
        let (mut part, begun) = (part, Instant::now());
        loop {
            match self.parts.try_send(part) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(back)) if self.waits() && begun.elapsed() < self.unread => part = back,
                Err(TrySendError::Full(_)) => return false,
            }
            self.taken.park_timeout(LOOK_AGAIN);
        }
    }

    /// Sends the reply: a long text in parts. The turn lasts until then, so that one long text is held at a time.
    fn finish(&self, answer: Result<String, String>) {
        let end = match answer {
            Ok(text) if text.len() > PART_BYTES => {
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    let (part, more) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
                    if !self.send_text(part) {
                        return;
                    }
                    rest = more;
                }
                Ok(String::new())
            }
            other => other,
        };
        // The requester may have disconnected meanwhile.
        let _gone = self.pass(ReplyPart::End(end));
    }
}

impl Work {
    /// Starts to compute a reply. `make` may send parts of its text; it returns the rest.
    ///
    /// # Errors
    /// Too many are in progress, or no thread can be created.
    pub(crate) fn begin(
        workers: &Workers,
        make: impl FnOnce(&Requester<'_>) -> Result<String, String> + Send + 'static,
    ) -> Result<Work, String> {
        Work::begin_with(workers, UNREAD, make)
    }

    fn begin_with(
        workers: &Workers,
        unread: Duration,
        make: impl FnOnce(&Requester<'_>) -> Result<String, String> + Send + 'static,
    ) -> Result<Work, String> {
        if Arc::strong_count(&workers.0) > WORKERS_MAX {
            return Err("too many answers are in the making: ask again later".to_string());
        }
        let (turns, (done, parts)) = (workers.0.clone(), sync_channel(PARTS_MAX));
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let parker = Parker::new();
        let taken = parker.unparker().clone();
        let work = move || {
            sys::confine::enter(Kind::Commands, &[]);
            let turn = RefCell::new(Some(lock(&turns)));
            let requester = Requester { parts: done, taken: parker, wanted: is_wanted, turn, unread };
            if requester.waits() {
                requester.finish(make(&requester));
            }
        };
        std::thread::Builder::new()
            .name("command".to_string())
            .spawn(work)
            .map_err(|e| format!("no thread can be had: {e}"))?;
        Ok(Work { parts, taken, _wanted: wanted })
    }

    /// The reply or its next part, once ready.
    pub(crate) fn part(&self) -> Option<ReplyPart> {
        match self.parts.try_recv() {
            Ok(part) => {
                self.taken.unpark();
                Some(part)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(ReplyPart::End(Err("the thread that made the answer ended".to_string())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const LIMIT: Duration = Duration::from_secs(60);

    fn wait(work: &Work) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            match work.part() {
                Some(ReplyPart::End(answer)) => return answer,
                Some(ReplyPart::Text(text) | ReplyPart::Json(text)) => panic!("{} bytes of text", text.len()),
                None => assert!(begun.elapsed() < LIMIT),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all_end(workers: &Workers) {
        let begun = Instant::now();
        while Arc::strong_count(&workers.0) > 1 {
            assert!(begun.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn replies_are_computed_in_turn_up_to_a_limit() {
        let workers = Workers::default();
        let held = lock(&workers.0);
        let (made, seen) = sync_channel(WORKERS_MAX);
        let begin = |n: usize| {
            let made = made.clone();
            Work::begin(&workers, move |_| {
                made.send(n).unwrap();
                Ok(n.to_string())
            })
        };
        let mut works: Vec<_> = (0..WORKERS_MAX).map(|n| begin(n).unwrap()).collect();
        assert!(begin(99).is_err_and(|e| e.contains("too many")));
        assert!(works.iter().all(|w| w.part().is_none()));
        // Unwanted replies are not computed.
        works.truncate(1);
        drop(held);
        assert_eq!(wait(&works[0]), Ok("0".to_string()));
        all_end(&workers);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn an_unwanted_reply_is_abandoned() {
        let workers = Workers::default();
        let (started, begun) = sync_channel(1);
        let work = Work::begin(&workers, move |requester| {
            started.send(requester.waits()).unwrap();
            while requester.waits() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(String::new())
        });
        assert_eq!(begun.recv_timeout(LIMIT), Ok(true));
        drop(work);
        all_end(&workers);
    }

    #[test]
    fn a_thread_that_ends_without_a_reply_is_reported() {
        let workers = Workers::default();
        let work = Work::begin(&workers, |_| panic!("on purpose")).unwrap();
        assert!(wait(&work).is_err_and(|e| e.contains("ended")));
        // The others have their turn all the same.
        assert_eq!(wait(&Work::begin(&workers, |_| Ok("x".to_string())).unwrap()), Ok("x".to_string()));
    }
    /// Takes all parts; returns the text of their contents, and the end.
    fn take(work: &Work) -> (String, Result<String, String>) {
        let (mut contents, begun) = (Vec::new(), Instant::now());
        loop {
            match work.part() {
                Some(ReplyPart::Text(some)) => {
                    // An escape takes two bytes.
                    assert!(some.len() <= 2 * PART_BYTES);
                    contents.extend(some);
                }
                Some(ReplyPart::End(end)) => {
                    let json = [&b"\""[..], &contents, b"\""].concat();
                    return (serde_json::from_slice(&json).unwrap(), end);
                }
                Some(ReplyPart::Json(json)) => panic!("{} bytes of JSON", json.len()),
                None => assert!(begun.elapsed() < LIMIT),
            }
        }
    }

    #[test]
    fn a_long_reply_is_sent_in_parts_while_others_are_computed() {
        let workers = Workers::default();
        let long = "a \"line\" of é\n".repeat(100_000);
        let (part, whole, parts) = ("part\t".repeat(40_000), long.clone(), 30);
        let text = part.clone();
        let meanwhile = Work::begin(&workers, move |requester| {
            (0..parts).for_each(|_| assert!(requester.send(&text)));
            Ok("rest".to_string())
        })
        .unwrap();
        // A thread that waits for its requester leaves the turn to others.
        assert_eq!(wait(&Work::begin(&workers, |_| Ok("x".to_string())).unwrap()), Ok("x".to_string()));
        let in_the_end = Work::begin(&workers, move |_| Ok(whole)).unwrap();
        assert_eq!(take(&in_the_end), (long.clone(), Ok(String::new())));
        assert_eq!(take(&meanwhile), (part.repeat(parts), Ok("rest".to_string())));
        all_end(&workers);
    }

    #[test]
    fn a_requester_that_is_gone_or_reads_nothing_is_given_up() {
        let workers = Workers::default();
        let begin = |unread| {
            Work::begin_with(&workers, unread, |requester| {
                while requester.send("some text") {}
                Err("no reader".to_string())
            })
            .unwrap()
        };
        let gone = begin(LIMIT * 10);
        let deaf = begin(Duration::from_millis(1));
        drop(gone);
        all_end(&workers);
        // The parts sent before are there, and then nothing.
        let got: Vec<_> = std::iter::from_fn(|| deaf.part()).take(PARTS_MAX + 1).collect();
        assert!(got[..PARTS_MAX].iter().all(|part| *part == ReplyPart::Text(b"some text".to_vec())));
        assert!(matches!(&got[PARTS_MAX], ReplyPart::End(Err(_))), "{got:?}");
    }
}
