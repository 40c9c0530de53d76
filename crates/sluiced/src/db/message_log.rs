//! [`MessageLog`]: debug lines of the log about messages of JSON-RPC connections, in the words of OVS (`jsonrpc`): to and
//! from a database server, clients of the embedded one, and clients of the control socket.

use log::Level;
use serde_json::{Deserializer, Value};

const MODULE: &str = "jsonrpc";
/// Maximum length of a message that is logged.
const MESSAGE_MAX_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct MessageLog {
    /// Beginning of a message.
    received: Vec<u8>,
}

fn is_on() -> bool {
    log::log_enabled!(target: MODULE, Level::Debug)
}

impl MessageLog {
    /// Logs the messages that are complete with these bytes from the peer.
    pub(crate) fn received(&mut self, peer: impl Fn() -> String, bytes: &[u8]) {
        if !is_on() {
            return self.received.clear();
        }
        let target = peer();
        self.received.extend_from_slice(bytes);
        let mut messages = Deserializer::from_slice(&self.received).into_iter::<Value>();
        let mut is_garbage = false;
        loop {
            match messages.next() {
                Some(Ok(message)) => log_message(&target, "received", &message),
                // The level may have changed in the middle of a message.
                Some(Err(e)) => {
                    is_garbage = !e.is_eof();
                    break;
                }
                None => break,
            }
        }
        let read = messages.byte_offset();
        self.received.drain(..read);
        if is_garbage || self.received.len() > MESSAGE_MAX_BYTES {
            self.received = Vec::new();
        }
    }
}

/// Logs the whole messages among bytes that are sent: a message in parts is left out.
pub(crate) fn log_sent(peer: impl Fn() -> String, bytes: &[u8]) {
    if is_on() {
        let target = peer();
        let messages = Deserializer::from_slice(bytes).into_iter::<Value>().map_while(Result::ok);
        messages.for_each(|message| log_message(&target, "send", &message));
    }
}

fn log_message(target: &str, verb: &str, message: &Value) {
    log::debug!(target: MODULE, "{target}: {verb} {}", text(message));
}

fn text(message: &Value) -> String {
    let of = |key: &str| &message[key];
    let (id, params) = (of("id"), of("params"));
    match (of("method"), of("error")) {
        (Value::Null, Value::Null) => format!("reply, result={}, id={id}", of("result")),
        (Value::Null, error) => format!("error, error={error}, id={id}"),
        (method, _) if id.is_null() => format!("notification, method={method}, params={params}"),
        (method, _) => format!("request, method={method}, params={params}, id={id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_told_as_in_ovs() {
        for (message, expected) in [
            (
                json!({"id": 6, "method": "transact", "params": ["a"]}),
                "request, method=\"transact\", params=[\"a\"], id=6",
            ),
            (
                json!({"id": null, "method": "update3", "params": []}),
                "notification, method=\"update3\", params=[]",
            ),
            (json!({"id": 7, "result": {}, "error": null}), "reply, result={}, id=7"),
            (json!({"id": 7, "result": null, "error": "e"}), "error, error=\"e\", id=7"),
        ] {
            assert_eq!(text(&message), expected);
        }
    }

    #[test]
    fn parts_of_messages_are_kept_only_while_they_are_wanted() {
        let mut log = MessageLog::default();
        log.received.extend_from_slice(b"{\"id\":");
        log.received(|| "unix:x".to_string(), b"1}");
        assert!(log.received.is_empty(), "no level");
    }
}
