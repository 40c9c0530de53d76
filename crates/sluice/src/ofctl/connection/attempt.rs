//! Changes of which the switch may refuse some: each refusal has the place of its message.

use super::{Answer, BUNDLE_FLAGS, Connection};
use anyhow::{Result, bail};
use openflow::Message;
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use std::collections::HashMap;

/// Messages sent before the errors are read: with more, both sides could wait for each other.
const IN_FLIGHT: usize = 128;

/// A message that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its place among the messages.
    pub(crate) at: usize,
    /// The error: an OpenFlow name, or the reason why the version cannot carry the message.
    pub(crate) error: String,
}

/// Messages on the way, by transaction, and refusals so far.
#[derive(Default)]
struct Attempt {
    sent: HashMap<u32, usize>,
    refused: Vec<Refusal>,
}

impl Attempt {
    /// Takes an error, if it is about one of the messages.
    fn take(&mut self, xid: u32, message: &Message) -> bool {
        let (Message::Error(body), Some(at)) = (message, self.sent.get(&xid)) else { return false };
        self.refused.push(Refusal { at: *at, error: body.error.to_string() });
        true
    }

    /// The refusals in the order of the messages, one for each.
    fn finish(mut self) -> Vec<Refusal> {
        self.refused.sort_by_key(|refusal| refusal.at);
        self.refused.dedup_by_key(|refusal| refusal.at);
        self.refused
    }
}

impl Connection {
    /// Sends messages one by one, and waits until the switch has processed them. Returns those that are refused.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn try_each(&mut self, messages: &[Message]) -> Result<Vec<Refusal>> {
        let mut attempt = Attempt::default();
        for (at, message) in messages.iter().enumerate() {
            self.try_one(at, message, &mut attempt)?;
        }
        self.settle(&mut attempt)?;
        Ok(attempt.finish())
    }

    /// Sends messages in one transaction: without a refusal all take effect, else none. Returns those that are refused; a
    /// switch may name only the first.
    ///
    /// # Errors
    /// The connection fails, or the switch refuses the transaction itself.
    pub(crate) fn try_bundle(&mut self, messages: &[Message]) -> Result<Vec<Refusal>> {
        let control = |ty| Message::BundleControl(BundleControl { bundle_id: 0, ty, flags: BUNDLE_FLAGS });
        self.ask(&control(BundleControlType::OpenRequest))?;
        let mut attempt = Attempt::default();
        for (at, message) in messages.iter().enumerate() {
            let message = Box::new(message.clone());
            let add = Message::BundleAdd(BundleAdd { bundle_id: 0, flags: BUNDLE_FLAGS, message });
            self.try_one(at, &add, &mut attempt)?;
        }
        self.settle(&mut attempt)?;
        if !attempt.refused.is_empty() {
            // An error may have ended the transaction already.
            let discard = self.send(&control(BundleControlType::DiscardRequest))?;
            while self.next_answer()?.xid != discard {}
            return Ok(attempt.finish());
        }
        let commit = self.send(&control(BundleControlType::CommitRequest))?;
        loop {
            let Answer { xid, message, frame } = self.next_answer()?;
            if !attempt.take(xid, &message) && xid == commit {
                return match message {
                    Message::Error(_) if attempt.refused.is_empty() => bail!("{:#}", self.refusal(&frame)),
                    _ => Ok(attempt.finish()),
                };
            }
        }
    }

    /// Sends a message; reads errors from time to time.
    fn try_one(&mut self, at: usize, message: &Message, attempt: &mut Attempt) -> Result<()> {
        match self.session.send(message) {
            Ok(xid) => drop(attempt.sent.insert(xid, at)),
            Err(error) => attempt.refused.push(Refusal { at, error: error.to_string() }),
        }
        self.flush()?;
        if (at + 1).is_multiple_of(IN_FLIGHT) { self.settle(attempt) } else { Ok(()) }
    }

    /// Takes all errors about messages that were sent before.
    fn settle(&mut self, attempt: &mut Attempt) -> Result<()> {
        let barrier = self.send(&Message::BarrierRequest)?;
        loop {
            let Answer { xid, message, frame } = self.next_answer()?;
            if attempt.take(xid, &message) {
                continue;
            }
            match message {
                Message::Error(_) if xid == barrier => return Err(self.refusal(&frame)),
                Message::BarrierReply if xid == barrier => return Ok(()),
                _ => {}
            }
        }
    }
}
