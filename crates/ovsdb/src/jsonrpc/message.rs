//! [`RpcMessage`]: a parsed JSON-RPC message.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// A message of either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum RpcMessage {
    /// Requires a reply with the same `id`.
    Request {
        /// Not null.
        id: Value,
        /// The method's name.
        method: String,
        /// Its parameters.
        params: Vec<Value>,
    },
    /// Requires no reply.
    Notification {
        /// The method's name.
        method: String,
        /// Its parameters.
        params: Vec<Value>,
    },
    /// The answer to a request.
    Reply {
        /// Id of the request.
        id: Value,
        /// The result.
        result: Value,
    },
    /// An error reply to a request.
    Error {
        /// Id of the request.
        id: Value,
        /// A string or an `<error>`.
        error: Value,
    },
}

/// A JSON text that is not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad JSON-RPC message: {0}")]
pub struct MessageError(pub String);

impl RpcMessage {
    /// Reads a message.
    pub fn from_json(json: Value) -> Result<RpcMessage, MessageError> {
        let fail = |text: &str| Err(MessageError(text.to_string()));
        let Value::Object(mut object) = json else {
            return fail("it is not an object");
        };
        let mut take = |name: &str| object.remove(name).filter(|value| !value.is_null());
        let (id, method, params) = (take("id"), take("method"), take("params"));
        let (result, error) = (take("result"), take("error"));
        if let Some(extra) = object.keys().next() {
            return Err(MessageError(format!("member \"{extra}\" is not allowed")));
        }
        let Some(method) = method else {
            return match (id, result, error) {
                (None, _, _) => fail("a reply must have an id"),
                (Some(_), Some(_), Some(_)) => fail("a reply may not have both a result and an error"),
                (Some(id), _, Some(error)) => Ok(RpcMessage::Error { id, error }),
                (Some(id), result, None) => {
                    Ok(RpcMessage::Reply { id, result: result.unwrap_or(Value::Null) })
                }
            };
        };
        let Value::String(method) = method else {
            return fail("the method must be a string");
        };
        if result.is_some() || error.is_some() {
            return fail("a request may have neither a result nor an error");
        }
        let Some(Value::Array(params)) = params else {
            return fail("the params must be an array");
        };
        Ok(match id {
            Some(id) => RpcMessage::Request { id, method, params },
            None => RpcMessage::Notification { method, params },
        })
    }

    /// Its JSON.
    pub fn into_json(self) -> Value {
        let members: Vec<(&str, Value)> = match self {
            RpcMessage::Request { id, method, params } => {
                vec![("id", id), ("method", Value::String(method)), ("params", Value::Array(params))]
            }
            RpcMessage::Notification { method, params } => {
                vec![("id", Value::Null), ("method", Value::String(method)), ("params", Value::Array(params))]
            }
            RpcMessage::Reply { id, result } => vec![("id", id), ("result", result), ("error", Value::Null)],
            RpcMessage::Error { id, error } => vec![("id", id), ("result", Value::Null), ("error", error)],
        };
        Value::Object(
            members.into_iter().map(|(name, value)| (name.to_string(), value)).collect::<Map<_, _>>(),
        )
    }

    /// The encoded bytes.
    pub fn encode(self) -> Vec<u8> {
        self.into_json().to_string().into_bytes()
    }

    /// The encoded bytes, if at most `max`; else an error with the length, without using memory for it.
    pub fn encode_within(self, max: usize) -> Result<Vec<u8>, TooLong> {
        let json = self.into_json();
        let mut text = BoundedText { kept: Vec::new(), bytes: 0, max };
        // The writer accepts everything.
        let _ = serde_json::to_writer(&mut text, &json);
        if text.bytes <= max { Ok(text.kept) } else { Err(TooLong { json, bytes: text.bytes }) }
    }
}

/// A message above the current limit.
#[derive(Debug)]
pub struct TooLong {
    json: Value,
    /// Its length.
    pub bytes: usize,
}

impl TooLong {
    /// The encoded bytes.
    pub fn encode(self) -> Vec<u8> {
        self.json.to_string().into_bytes()
    }
}

/// Keeps a text up to a bound; beyond it only counts.
struct BoundedText {
    kept: Vec<u8>,
    bytes: usize,
    max: usize,
}

impl Write for BoundedText {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.bytes += part.len();
        match self.bytes <= self.max {
            true => self.kept.extend_from_slice(part),
            false => self.kept = Vec::new(),
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
