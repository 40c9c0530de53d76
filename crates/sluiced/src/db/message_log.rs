//! [`MessageLog`]: debug lines of the log about messages to and from a database server, in the words of OVS (`jsonrpc`).

use log::Level;
use serde_json::{Deserializer, Value};

const MODULE: &str = "jsonrpc";
/// Maximum length of a message that is logged.
const MESSAGE_MAX_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Default)]
pub(super) struct MessageLog {
    /// Beginning of a message.
    received: Vec<u8>,
}

fn is_on() -> bool {
    log::log_enabled!(target: MODULE, Level::Debug)
}

impl MessageLog {
    /// Logs whole messages sent to the server.
    pub(super) fn sent(&self, target: &str, bytes: &[u8]) {
        if is_on() {
            let messages = Deserializer::from_slice(bytes).into_iter::<Value>().map_while(Result::ok);
            messages.for_each(|message| log_message(target, "send", &message));
        }
    }

    /// Logs the messages that are complete with these bytes from the server.
    pub(super) fn received(&mut self, target: &str, bytes: &[u8]) {
        if !is_on() {
            return self.received.clear();
        }
        self.received.extend_from_slice(bytes);
        let mut messages = Deserializer::from_slice(&self.received).into_iter::<Value>();
        let mut is_garbage = false;
        loop {
            match messages.next() {
                Some(Ok(message)) => log_message(target, "received", &message),
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
        log.received("unix:x", b"1}");
        assert!(log.received.is_empty(), "no level");
    }
}
