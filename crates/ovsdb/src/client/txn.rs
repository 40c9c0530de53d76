//! [`TxnBuilder`]: transactions built from typed values, and their outcomes.

use serde_json::{Map, Value, json};

use crate::value::{Datum, Uuid, datum_to_json};

/// A row inserted by a transaction, without a UUID yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowHandle(usize);

impl RowHandle {
    fn name(self) -> String {
        format!("row{}", self.0)
    }
}

/// A row to refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowTarget {
    /// One that exists.
    Existing(Uuid),
    /// One that the same transaction inserts.
    New(RowHandle),
}

impl From<Uuid> for RowTarget {
    fn from(uuid: Uuid) -> Self {
        RowTarget::Existing(uuid)
    }
}

impl From<RowHandle> for RowTarget {
    fn from(handle: RowHandle) -> Self {
        RowTarget::New(handle)
    }
}

impl RowTarget {
    fn to_json(self) -> Value {
        match self {
            RowTarget::Existing(uuid) => json!(["uuid", uuid.to_string()]),
            RowTarget::New(handle) => json!(["named-uuid", handle.name()]),
        }
    }
}

/// A column's value in a transaction: a [`Datum`], or references, also to new rows.
#[derive(Clone, Debug)]
pub struct ColumnValue(Value);

impl ColumnValue {
    /// The set of these rows.
    pub fn refs<T: Into<RowTarget>>(targets: impl IntoIterator<Item = T>) -> Self {
        let list: Vec<Value> = targets.into_iter().map(|target| target.into().to_json()).collect();
        ColumnValue(json!(["set", list]))
    }

    /// A map from these keys to rows.
    pub fn ref_map<K: Into<Datum>, T: Into<RowTarget>>(pairs: impl IntoIterator<Item = (K, T)>) -> Self {
        let pair = |(key, target): (K, T)| json!([datum_to_json(&key.into()), target.into().to_json()]);
        let list: Vec<Value> = pairs.into_iter().map(pair).collect();
        ColumnValue(json!(["map", list]))
    }
}

impl<D: Into<Datum>> From<D> for ColumnValue {
    fn from(datum: D) -> Self {
        ColumnValue(datum_to_json(&datum.into()))
    }
}

impl From<RowHandle> for ColumnValue {
    fn from(handle: RowHandle) -> Self {
        ColumnValue(RowTarget::New(handle).to_json())
    }
}

/// Operations of one transaction, in order.
#[derive(Clone, Debug, Default)]
pub struct TxnBuilder {
    operations: Vec<Value>,
    /// For each handle the operation that inserts it.
    inserts: Vec<usize>,
}

fn by_uuid(uuid: Uuid) -> Value {
    json!([["_uuid", "==", ["uuid", uuid.to_string()]]])
}

fn row(columns: impl IntoIterator<Item = (impl AsRef<str>, ColumnValue)>) -> Value {
    Value::Object(
        columns.into_iter().map(|(name, value)| (name.as_ref().to_string(), value.0)).collect::<Map<_, _>>(),
    )
}

impl TxnBuilder {
    /// An empty transaction.
    pub fn new() -> Self {
        TxnBuilder::default()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Inserts a row.
    pub fn insert(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (impl AsRef<str>, ColumnValue)>,
    ) -> RowHandle {
        let handle = RowHandle(self.inserts.len());
        self.inserts.push(self.operations.len());
        self.operations
            .push(json!({"op": "insert", "table": table, "uuid-name": handle.name(), "row": row(columns)}));
        handle
    }

    /// Sets columns of a row.
    pub fn update(
        &mut self,
        table: &str,
        uuid: Uuid,
        columns: impl IntoIterator<Item = (impl AsRef<str>, ColumnValue)>,
    ) {
        self.operations
            .push(json!({"op": "update", "table": table, "where": by_uuid(uuid), "row": row(columns)}));
    }

    /// Mutates a column of a row: `mutator` is one of `+= -= *= /= %= insert delete`.
    pub fn mutate(
        &mut self,
        table: &str,
        uuid: Uuid,
        column: &str,
        mutator: &str,
        value: impl Into<ColumnValue>,
    ) {
        let mutations = json!([[column, mutator, value.into().0]]);
        self.operations
            .push(json!({"op": "mutate", "table": table, "where": by_uuid(uuid), "mutations": mutations}));
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &str, uuid: Uuid) {
        self.operations.push(json!({"op": "delete", "table": table, "where": by_uuid(uuid)}));
    }

    /// Continues only if the row still has these values; otherwise the outcome is [`TxnOutcome::TryAgain`].
    pub fn verify(
        &mut self,
        table: &str,
        uuid: Uuid,
        columns: impl IntoIterator<Item = (impl AsRef<str>, Datum)>,
    ) {
        let values: Map<String, Value> = columns
            .into_iter()
            .map(|(name, datum)| (name.as_ref().to_string(), datum_to_json(&datum)))
            .collect();
        let names: Vec<&str> = values.keys().map(String::as_str).collect();
        self.operations.push(json!({"op": "wait", "table": table, "where": by_uuid(uuid), "columns": names,
            "until": "==", "rows": [values], "timeout": 0}));
    }

    /// Continues only if this client holds the lock; otherwise the outcome is [`TxnOutcome::NotLocked`].
    pub fn assert_lock(&mut self, name: &str) {
        self.operations.push(json!({"op": "assert", "lock": name}));
    }

    /// A comment for the log.
    pub fn comment(&mut self, text: &str) {
        self.operations.push(json!({"op": "comment", "comment": text}));
    }

    /// Requires that the commit be on disk before the reply.
    pub fn durable(&mut self) {
        self.operations.push(json!({"op": "commit", "durable": true}));
    }

    /// Appends any operation as JSON.
    pub fn raw(&mut self, operation: Value) {
        self.operations.push(operation);
    }

    pub(super) fn into_parts(self) -> (Vec<Value>, Vec<usize>) {
        (self.operations, self.inserts)
    }
}

/// Outcome of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TxnOutcome {
    /// It took effect.
    Success {
        /// The UUIDs of the inserted rows, in the order of their insertion.
        inserted: Vec<Uuid>,
        /// The result of each operation.
        results: Vec<Value>,
    },
    /// Its base has changed: read again and rebuild it.
    TryAgain,
    /// The client does not hold the asserted lock.
    NotLocked,
    /// It failed, and would fail again.
    Error(String),
    /// The connection broke: its effect is unknown.
    Lost,
}

impl TxnOutcome {
    /// The UUID of a row it inserted.
    pub fn uuid(&self, handle: RowHandle) -> Option<Uuid> {
        match self {
            TxnOutcome::Success { inserted, .. } => inserted.get(handle.0).copied(),
            _ => None,
        }
    }

    pub(super) fn from_results(inserts: &[usize], result: Value) -> TxnOutcome {
        let Value::Array(results) = result else {
            return TxnOutcome::Error(format!("the result is not an array: {result}"));
        };
        if let Some(error) = results.iter().find(|result| result.get("error").is_some()) {
            return match error["error"].as_str() {
                Some("timed out") => TxnOutcome::TryAgain,
                Some("not owner") => TxnOutcome::NotLocked,
                _ => TxnOutcome::Error(error_text(error)),
            };
        }
        let uuid = |at: &usize| results.get(*at)?["uuid"][1].as_str()?.parse().ok();
        match inserts.iter().map(uuid).collect() {
            Some(inserted) => TxnOutcome::Success { inserted, results },
            None => TxnOutcome::Error("the result of an insert has no UUID".into()),
        }
    }
}

/// An `<error>` for people.
pub(super) fn error_text(error: &Value) -> String {
    match (error["error"].as_str(), error["details"].as_str()) {
        (Some(kind), Some(details)) => format!("{kind}: {details}"),
        (Some(kind), None) => kind.to_string(),
        _ => error.as_str().map_or_else(|| error.to_string(), str::to_string),
    }
}
