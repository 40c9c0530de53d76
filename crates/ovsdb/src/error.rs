//! The `<error>` object of RFC 7047 section 4.1.3 in `ovsdb-server`'s form: a fixed `error` string for
//! clients, `details` for people, and optionally `syntax`, the offending JSON.

use serde_json::{Map, Value};

use crate::limits::MAX_SYNTAX_BYTES;

/// The fixed strings of the `error` member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is not well-formed.
    Syntax,
    /// A column that the table lacks.
    UnknownColumn,
    /// An unknown database.
    UnknownDatabase,
    /// A condition's function that does not exist.
    UnknownFunction,
    /// A mutator that does not exist.
    UnknownMutator,
    /// A schema constraint is broken.
    Constraint,
    /// A strong reference is left dangling.
    Referential,
    /// Two inserts share a `uuid-name`.
    DuplicateUuidName,
    /// An insert names a UUID in use.
    DuplicateUuid,
    /// A set or map repeats an element.
    Duplicate,
    /// Division by zero.
    Domain,
    /// Arithmetic overflow.
    Range,
    /// A `wait` did not come true in time.
    TimedOut,
    /// An `abort` operation.
    Aborted,
    /// An `assert` on a lock that the session does not own.
    NotOwner,
    /// The database may not be written.
    NotAllowed,
    /// A limit of this server is reached.
    Resources,
    /// The log could not be written.
    Io,
    /// Parameters that do not fit together.
    Parameters,
}

impl ErrorKind {
    /// The wire string.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Syntax => "syntax error",
            ErrorKind::UnknownColumn => "unknown column",
            ErrorKind::UnknownDatabase => "unknown database",
            ErrorKind::UnknownFunction => "unknown function",
            ErrorKind::UnknownMutator => "unknown mutator",
            ErrorKind::Constraint => "constraint violation",
            ErrorKind::Referential => "referential integrity violation",
            ErrorKind::DuplicateUuidName => "duplicate uuid-name",
            ErrorKind::DuplicateUuid => "duplicate uuid",
            ErrorKind::Duplicate => "ovsdb error",
            ErrorKind::Domain => "domain error",
            ErrorKind::Range => "range error",
            ErrorKind::TimedOut => "timed out",
            ErrorKind::Aborted => "aborted",
            ErrorKind::NotOwner => "not owner",
            ErrorKind::NotAllowed => "not allowed",
            ErrorKind::Resources => "resources exhausted",
            ErrorKind::Io => "I/O error",
            ErrorKind::Parameters => "invalid parameters",
        }
    }
}

/// One `<error>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {details}", kind.as_str())]
pub struct OpError {
    /// Compared by clients.
    pub kind: ErrorKind,
    /// Read by people.
    pub details: String,
    /// The offending JSON, shortened to [`MAX_SYNTAX_BYTES`].
    pub syntax: Option<String>,
}

impl OpError {
    /// An error without the `syntax` member.
    pub fn new(kind: ErrorKind, details: impl Into<String>) -> Self {
        OpError { kind, details: details.into(), syntax: None }
    }

    /// A `syntax error` about `json`.
    pub fn syntax(json: &Value, details: impl Into<String>) -> Self {
        OpError::new(ErrorKind::Syntax, details).at(json)
    }

    /// The same error, pointing at `json`.
    pub fn at(mut self, json: &Value) -> Self {
        self.syntax = Some(shorten(json.to_string()));
        self
    }

    /// The object sent to clients.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        if let Some(syntax) = &self.syntax {
            object.insert("syntax".into(), Value::from(syntax.as_str()));
        }
        object.insert("details".into(), Value::from(self.details.as_str()));
        object.insert("error".into(), Value::from(self.kind.as_str()));
        Value::Object(object)
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_SYNTAX_BYTES {
        let cut = (0..=MAX_SYNTAX_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}
