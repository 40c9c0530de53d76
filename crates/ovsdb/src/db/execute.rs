//! [`transact`]: runs the operations of a `transact` request (RFC 7047 sections 4.1.3 and 5.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::condition::{Condition, Field};
use super::mutation::Mutation;
use super::operation::{Members, immutable, parse_fields, parse_row};
use super::{Database, Delta, Row, RowKey, Txn, row_json};
use crate::error::{ErrorKind, OpError};
use crate::schema::{ColumnIx, TableIx, TableSchema};
use crate::value::{Datum, NamedUuids, Uuid, UuidSource, number_to_i64};

/// Environment of a transaction.
pub struct Context<'a> {
    /// UUIDs of rows and of their versions.
    pub uuids: &'a mut dyn UuidSource,
    /// Whether the client owns the lock of this name.
    pub owns_lock: &'a dyn Fn(&str) -> bool,
    /// Milliseconds since the client sent the request.
    pub elapsed_ms: u64,
    /// Whether to reject operations that write.
    pub read_only: bool,
}

/// Result of a successful transaction.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The rows that differ now; possibly none.
    pub delta: Delta,
    /// Whether a `commit` operation requires durability.
    pub durable: bool,
    /// The `comment` operations, one to a line.
    pub comment: String,
}

/// Outcome of a transaction.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It succeeded or failed. `results` is the `result` of the reply; `commit` is `None` on failure.
    Done {
        /// One element per operation, and one more if the commit failed.
        results: Vec<Value>,
        /// The commit.
        commit: Option<Commit>,
    },
    /// A `wait` operation does not hold yet. Nothing changed; run it again after another commit, or after
    /// this much waiting (never if `None`).
    Waiting {
        /// Milliseconds since the request.
        timeout_ms: Option<u64>,
    },
}

/// Runs operations: all or none take effect.
pub fn transact(db: &mut Database, operations: &[Value], context: Context<'_>) -> Outcome {
    let mut run = Run {
        schema: db.schema().clone(),
        owns_lock: context.owns_lock,
        elapsed_ms: context.elapsed_ms,
        read_only: context.read_only,
        names: Names::default(),
        durable: false,
        comment: String::new(),
        txn: Txn::new(db, context.uuids),
    };
    run.names.bind_explicit(operations);
    let mut results = Vec::with_capacity(operations.len() + 1);
    for (ix, operation) in operations.iter().enumerate() {
        let place = format!("operation {} of {}", ix + 1, operations.len());
        match Members::new(operation, place).map_err(Stop::Error).and_then(|members| run.operation(members)) {
            Ok(result) => results.push(result),
            Err(Stop::Wait(timeout_ms)) => return Outcome::Waiting { timeout_ms },
            Err(Stop::Error(error)) => {
                results.push(error.to_json());
                results.resize(operations.len(), Value::Null);
                return Outcome::Done { results, commit: None };
            }
        }
    }
    let Run { txn, durable, comment, .. } = run;
    let commit = match txn.commit() {
        Ok(delta) => Some(Commit { delta, durable, comment }),
        Err(error) => {
            results.push(error.to_json());
            None
        }
    };
    Outcome::Done { results, commit }
}

/// Reason to stop the operations.
enum Stop {
    Error(OpError),
    Wait(Option<u64>),
}

impl From<OpError> for Stop {
    fn from(error: OpError) -> Self {
        Stop::Error(error)
    }
}

/// The `uuid-name`s of a transaction.
#[derive(Default)]
struct Names {
    uuids: BTreeMap<String, Uuid>,
    inserted: BTreeSet<String>,
}

impl Names {
    /// Binds names with a UUID given by the client, anywhere in the transaction.
    fn bind_explicit(&mut self, operations: &[Value]) {
        for operation in operations {
            if let (Some(name), Some(uuid)) = (operation["uuid-name"].as_str(), operation["uuid"].as_str())
                && let Ok(uuid) = uuid.parse()
            {
                self.uuids.entry(name.to_string()).or_insert(uuid);
            }
        }
    }

    fn uuid(&mut self, name: &str, source: &mut dyn UuidSource) -> Uuid {
        if let Some(uuid) = self.uuids.get(name) {
            return *uuid;
        }
        let uuid = source.next_uuid();
        self.uuids.insert(name.to_string(), uuid);
        uuid
    }
}

struct Resolver<'a> {
    names: &'a mut Names,
    source: &'a mut dyn UuidSource,
}

impl NamedUuids for Resolver<'_> {
    fn resolve(&mut self, name: &str) -> Option<Uuid> {
        Some(self.names.uuid(name, self.source))
    }
}

struct Run<'a> {
    schema: Arc<crate::schema::DatabaseSchema>,
    txn: Txn<'a>,
    names: Names,
    owns_lock: &'a dyn Fn(&str) -> bool,
    elapsed_ms: u64,
    read_only: bool,
    durable: bool,
    comment: String,
}

type Step = Result<Value, Stop>;

impl Run<'_> {
    fn operation(&mut self, mut members: Members<'_>) -> Step {
        match members.string("op")? {
            "insert" => self.insert(members),
            "select" => self.select(members),
            "update" => self.update(members),
            "mutate" => self.mutate(members),
            "delete" => self.delete(members),
            "wait" => self.wait(members),
            "commit" => self.commit(members),
            "abort" => {
                members.finish()?;
                Err(OpError::new(ErrorKind::Aborted, "aborted by request").into())
            }
            "comment" => self.add_comment(members),
            "assert" => self.assert(members),
            other => Err(members.error(format_args!("there is no operation \"{other}\"")).into()),
        }
    }

    fn table(&self, members: &mut Members<'_>) -> Result<(TableIx, Arc<TableSchema>), OpError> {
        let name = members.string("table")?;
        match self.schema.table_ix(name) {
            Some(ix) => Ok((ix, self.schema.tables[ix.0].clone())),
            None => Err(members.error(format_args!("there is no table {name}"))),
        }
    }

    fn check_writable(&self, operation: &str) -> Result<(), OpError> {
        if self.read_only {
            let details = format!("{operation}: database {} may only be read", self.schema.name);
            return Err(OpError::new(ErrorKind::NotAllowed, details));
        }
        Ok(())
    }

    fn row(&mut self, table: &TableSchema, json: &Value) -> Result<Vec<(Field, Datum)>, OpError> {
        parse_row(table, json, &mut Resolver { names: &mut self.names, source: &mut *self.txn.uuids })
    }

    fn condition(&mut self, table: &TableSchema, json: &Value) -> Result<Condition, OpError> {
        Condition::parse(table, json, &mut Resolver { names: &mut self.names, source: &mut *self.txn.uuids })
    }

    /// The rows that satisfy all clauses.
    fn matching(&self, ix: TableIx, condition: &Condition) -> Vec<(Uuid, Arc<Row>)> {
        let row = |uuid: Uuid| self.txn.row((ix, uuid)).map(|row| (uuid, row.clone()));
        let keep = |(uuid, row): &(Uuid, Arc<Row>)| condition.all(*uuid, row);
        match self.candidates(ix, condition) {
            Some(uuids) => uuids.into_iter().filter_map(row).filter(keep).collect(),
            None => self.txn.db.rows(ix).map(|(uuid, row)| (uuid, row.clone())).filter(keep).collect(),
        }
    }

    /// The only candidate rows, if the condition fixes a UUID or the value of a unique index.
    fn candidates(&self, ix: TableIx, condition: &Condition) -> Option<BTreeSet<Uuid>> {
        let table = &self.schema.tables[ix.0];
        condition.fixed().find_map(|(field, value)| match field {
            Field::Uuid => Some(value.as_atom().and_then(|atom| atom.as_uuid()).into_iter().collect()),
            Field::Version => None,
            Field::Column(column) => {
                let index = table.indexes.iter().position(|columns| columns.as_slice() == [column])?;
                let committed = self.txn.db.indexed(ix, index, std::slice::from_ref(value));
                Some(committed.into_iter().chain(self.txn.touched(ix)).collect())
            }
        })
    }

    fn insert(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let name = members.identifier("uuid-name")?;
        let explicit = match members.optional("uuid") {
            None => None,
            Some(json) => match json.as_str().and_then(|text| text.parse::<Uuid>().ok()) {
                Some(uuid) => Some((uuid, json)),
                None => return Err(members.error("member \"uuid\" must be a string that is a UUID").into()),
            },
        };
        let row = members.object("row")?;
        members.finish()?;
        self.check_writable("insert")?;
        if let Some((uuid, json)) = explicit
            && self.txn.knows((ix, uuid))
        {
            let details =
                format!("table {} has, or had in this transaction, a row with this UUID", table.name);
            return Err(OpError::new(ErrorKind::DuplicateUuid, details).at(json).into());
        }
        if let Some(name) = name
            && !self.names.inserted.insert(name.to_string())
        {
            let details = "an earlier insert of this transaction has this uuid-name";
            return Err(OpError::new(ErrorKind::DuplicateUuidName, details).at(&Value::from(name)).into());
        }
        let uuid = match (explicit, name) {
            (Some((uuid, _)), _) => uuid,
            (None, Some(name)) => self.names.uuid(name, &mut *self.txn.uuids),
            (None, None) => self.txn.uuids.next_uuid(),
        };
        let values = self.row(&table, row)?;
        let mut columns = Row::with_defaults(&table, Uuid::ZERO).columns;
        assign(&mut columns, values);
        for (column, datum) in table.columns.iter().zip(&columns) {
            column.ty.check_constraints(datum)?;
        }
        self.txn.set_columns((ix, uuid), columns);
        Ok(json!({"uuid": ["uuid", uuid.to_string()]}))
    }

    fn select(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let clauses = members.array("where")?;
        let columns = members.optional("columns");
        members.finish()?;
        let condition = self.condition(&table, clauses)?;
        let fields = match columns {
            Some(json) => parse_fields(&table, json)?,
            None => all_fields(&table),
        };
        let rows = self.matching(ix, &condition);
        let rows = rows.iter().map(|(uuid, row)| row_json(&table, *uuid, row, &fields)).collect();
        Ok(Value::Object(Map::from_iter([("rows".to_string(), Value::Array(rows))])))
    }

    fn update(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let row = members.object("row")?;
        let clauses = members.array("where")?;
        members.finish()?;
        self.check_writable("update")?;
        let values = self.row(&table, row)?;
        if let Some(name) = immutable(&table, &values) {
            let details = format!("column {name} of table {} cannot be changed", table.name);
            return Err(OpError::new(ErrorKind::Constraint, details).at(members.json()).into());
        }
        let condition = self.condition(&table, clauses)?;
        let rows = self.matching(ix, &condition);
        for (uuid, row) in &rows {
            let mut columns = row.columns.clone();
            assign(&mut columns, values.clone());
            self.change((ix, *uuid), row, columns);
        }
        Ok(json!({"count": rows.len()}))
    }

    fn mutate(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let clauses = members.array("where")?;
        let list = members.array("mutations")?;
        members.finish()?;
        self.check_writable("mutate")?;
        let mut resolver = Resolver { names: &mut self.names, source: &mut *self.txn.uuids };
        let mutations = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|json| Mutation::parse(&table, json, &mut resolver))
            .collect::<Result<Vec<_>, _>>()?;
        let condition = self.condition(&table, clauses)?;
        let rows = self.matching(ix, &condition);
        for (uuid, row) in &rows {
            let mut columns = row.columns.clone();
            for mutation in &mutations {
                mutation.apply(&table, &mut columns)?;
            }
            self.change((ix, *uuid), row, columns);
        }
        Ok(json!({"count": rows.len()}))
    }

    fn change(&mut self, key: RowKey, row: &Row, columns: Vec<Datum>) {
        if row.columns != columns {
            self.txn.set_columns(key, columns);
        }
    }

    fn delete(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let clauses = members.array("where")?;
        members.finish()?;
        self.check_writable("delete")?;
        let condition = self.condition(&table, clauses)?;
        let rows = self.matching(ix, &condition);
        for (uuid, _) in &rows {
            self.txn.put((ix, *uuid), None);
        }
        Ok(json!({"count": rows.len()}))
    }

    fn wait(&mut self, mut members: Members<'_>) -> Step {
        let (ix, table) = self.table(&mut members)?;
        let (timeout, clauses) = (members.optional("timeout"), members.array("where")?);
        let (columns, until) = (members.optional("columns"), members.string("until")?);
        let rows = members.array("rows")?;
        members.finish()?;
        let timeout_ms = match timeout {
            None => None,
            Some(json) => match json {
                Value::Number(n) => number_to_i64(n).and_then(|n| u64::try_from(n).ok()).map(Some),
                _ => None,
            }
            .ok_or_else(|| OpError::syntax(json, "the timeout must be an integer that is not negative"))?,
        };
        let condition = self.condition(&table, clauses)?;
        let fields = match columns {
            Some(json) => parse_fields(&table, json)?,
            None => (0..table.columns.len()).map(|ix| Field::Column(ColumnIx(ix))).collect(),
        };
        let equal = match until {
            "==" => true,
            "!=" => false,
            other => {
                return Err(OpError::syntax(&Value::from(other), "\"until\" must be \"==\" or \"!=\"").into());
            }
        };
        let mut expected = BTreeSet::new();
        for json in rows.as_array().into_iter().flatten() {
            let mut row = Row::with_defaults(&table, Uuid::ZERO);
            let mut uuid = Uuid::ZERO;
            for (field, datum) in self.row(&table, json)? {
                let given = datum.as_atom().and_then(|atom| atom.as_uuid()).unwrap_or_default();
                match field {
                    Field::Uuid => uuid = given,
                    Field::Version => row.version = given,
                    Field::Column(ix) => row.columns[ix.0] = datum,
                }
            }
            expected.insert(project(uuid, &row, &fields));
        }
        let actual: BTreeSet<Vec<Datum>> =
            self.matching(ix, &condition).iter().map(|(uuid, row)| project(*uuid, row, &fields)).collect();
        if (actual == expected) == equal {
            return Ok(json!({}));
        }
        match timeout_ms {
            Some(0) => Err(OpError::new(ErrorKind::TimedOut, "the \"wait\" condition does not hold").into()),
            Some(limit) if self.elapsed_ms >= limit => {
                let details = format!("the \"wait\" condition does not hold after {} ms", self.elapsed_ms);
                Err(OpError::new(ErrorKind::TimedOut, details).into())
            }
            _ => Err(Stop::Wait(timeout_ms)),
        }
    }

    fn commit(&mut self, mut members: Members<'_>) -> Step {
        let durable = members.boolean("durable")?;
        members.finish()?;
        self.durable |= durable;
        Ok(json!({}))
    }

    fn add_comment(&mut self, mut members: Members<'_>) -> Step {
        let comment = members.string("comment")?;
        members.finish()?;
        if !self.comment.is_empty() {
            self.comment.push('\n');
        }
        // Some readers of the log reject NUL characters.
        self.comment.extend(comment.chars().filter(|c| *c != '\0'));
        Ok(json!({}))
    }

    fn assert(&mut self, mut members: Members<'_>) -> Step {
        let Some(lock) = members.identifier("lock")? else {
            return Err(members.error("required member \"lock\" is missing").into());
        };
        members.finish()?;
        if !(self.owns_lock)(lock) {
            return Err(OpError::new(ErrorKind::NotOwner, format!("lock {lock} is not held")).into());
        }
        Ok(json!({}))
    }
}

fn all_fields(table: &TableSchema) -> Vec<Field> {
    let columns = (0..table.columns.len()).map(|ix| Field::Column(ColumnIx(ix)));
    [Field::Uuid, Field::Version].into_iter().chain(columns).collect()
}

fn assign(columns: &mut [Datum], values: Vec<(Field, Datum)>) {
    for (field, datum) in values {
        if let Field::Column(ix) = field {
            columns[ix.0] = datum;
        }
    }
}

fn project(uuid: Uuid, row: &Row, fields: &[Field]) -> Vec<Datum> {
    fields.iter().map(|field| row.field(uuid, *field)).collect()
}
