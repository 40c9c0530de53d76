//! [`Reply`]: the result of a command before its format is chosen, and [`Answer`]: the same for the client.

use super::Wait;
use crate::unixctl::Format;
use crate::work::{PART_BYTES, Requester, Work, Workers};
use serde_json::Value;

/// The result of a command.
pub(super) enum Reply {
    /// Text for the terminal. It is wrapped for clients that want JSON.
    Text(String),
    /// The command failed.
    Error(String),
    /// A value with JSON of its own.
    Value(Box<dyn TypedReply>),
    /// A value that takes long to print: a thread does so.
    Long(Box<dyn TypedReply>),
    /// The result follows after some event.
    Later(Wait),
    /// Further replies to this client have this format.
    Format(Format),
}

/// A value that prints as text and as JSON.
pub(super) trait TypedReply: Send {
    /// The text for the terminal.
    fn text(&self) -> String;
    /// The JSON, in the shape of OVS.
    fn json(&self) -> Json<'_>;
}

/// JSON of a value.
pub(super) enum Json<'a> {
    /// The value.
    Whole(Value),
    /// The elements of an array that may be too long to be held as a whole.
    Elements(Box<dyn Iterator<Item = Value> + 'a>),
}

impl Json<'_> {
    /// The whole value.
    pub(super) fn value(self) -> Value {
        match self {
            Json::Whole(value) => value,
            Json::Elements(elements) => elements.collect(),
        }
    }
}

/// The result of a command in the format of its client.
pub enum Answer {
    /// Text for the terminal, or an error.
    Now(Result<String, String>),
    /// A reply after some event.
    Later(Wait),
    /// JSON that is not wrapped.
    Json(Value),
    /// Further replies to this client have this format.
    Format(Format),
}

impl From<Result<String, String>> for Reply {
    fn from(result: Result<String, String>) -> Reply {
        result.map_or_else(Reply::Error, Reply::Text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Reply {
        Reply::Text(text)
    }
}

impl Reply {
    /// The reply, or the error why there is none.
    pub(super) fn or_error(result: Result<Reply, String>) -> Reply {
        result.unwrap_or_else(Reply::Error)
    }

    /// Prints it in a format.
    pub(super) fn print(self, format: Format, workers: &Workers) -> Answer {
        match (self, format) {
            (Reply::Text(text), _) => Answer::Now(Ok(text)),
            (Reply::Error(why), _) => Answer::Now(Err(why)),
            (Reply::Value(value), Format::Text) => Answer::Now(Ok(value.text())),
            (Reply::Value(value), Format::Json) => Answer::Json(value.json().value()),
            (Reply::Long(value), format) => {
                let work = Work::begin(workers, move |requester| match format {
                    Format::Text => Ok(value.text()),
                    Format::Json => send_json(value.json(), requester),
                });
                work.map_or_else(|e| Answer::Now(Err(e)), |work| Answer::Later(Wait::Work(work)))
            }
            (Reply::Later(wait), _) => Answer::Later(wait),
            (Reply::Format(format), _) => Answer::Format(format),
        }
    }
}

/// Sends JSON in parts; returns the text that ends them.
fn send_json(json: Json<'_>, requester: &Requester<'_>) -> Result<String, String> {
    let elements = match json {
        Json::Elements(elements) => elements,
        Json::Whole(value) => {
            requester.send_json(&value.to_string());
            return Ok(String::new());
        }
    };
    let (mut out, mut separator) = ("[".to_string(), "");
    for element in elements {
        out += separator;
        out += &element.to_string();
        separator = ",";
        if out.len() >= PART_BYTES {
            if !requester.send_json(&out) {
                break;
            }
            out.clear();
        }
    }
    requester.send_json(&(out + "]"));
    Ok(String::new())
}
