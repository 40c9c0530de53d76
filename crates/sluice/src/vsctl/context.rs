//! [`Context`]: state shared by the commands of one invocation: the transaction under construction, the rows
//! called `@name`, and the output so far.

use std::collections::BTreeMap;

use ovsdb::client::Replica;
use ovsdb::value::Uuid;

use super::Stop;
use super::table::Table;
use super::work::{Row, Work};

#[derive(Debug)]
struct Symbol {
    uuid: Uuid,
    created: bool,
    referred: bool,
}

/// Output of one command.
#[derive(Debug)]
pub(crate) enum Output {
    Text(String),
    Table(Table),
    /// The final UUID of a row with a provisional one.
    Created(Uuid),
}

/// The state of one attempt.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) work: Work<'a>,
    symbols: BTreeMap<String, Symbol>,
    pub(crate) comments: Vec<String>,
    /// New interfaces, to check their `error` after the switch has applied the change.
    pub(crate) new_interfaces: Vec<Uuid>,
    pub(crate) warnings: Vec<String>,
    pub(crate) output: Output,
}

impl<'a> Context<'a> {
    pub(crate) fn new(replica: &'a Replica) -> Self {
        Context {
            work: Work::new(replica),
            symbols: BTreeMap::new(),
            comments: Vec::new(),
            new_interfaces: Vec::new(),
            warnings: Vec::new(),
            output: Output::Text(String::new()),
        }
    }

    /// The output of the command that just ran.
    pub(crate) fn take_output(&mut self) -> Output {
        std::mem::replace(&mut self.output, Output::Text(String::new()))
    }

    /// Adds a line to the command's output.
    pub(crate) fn say(&mut self, line: &str) {
        if let Output::Text(text) = &mut self.output {
            text.push_str(line);
            text.push('\n');
        }
    }

    /// The root record of the configuration; created if absent.
    pub(crate) fn root(&mut self) -> Result<Row, Stop> {
        let table = self.work.table("Open_vSwitch")?;
        match self.work.rows(table).first() {
            Some(row) => Ok(*row),
            None => Ok(self.work.insert_new(table)),
        }
    }

    /// The UUID of `@name`, for a reference.
    pub(crate) fn refer(&mut self, name: &str) -> Uuid {
        let symbol = self.symbol(name);
        symbol.referred = true;
        symbol.uuid
    }

    fn symbol(&mut self, name: &str) -> &mut Symbol {
        let work = &mut self.work;
        self.symbols.entry(name.to_string()).or_insert_with(|| Symbol {
            uuid: work.provisional(),
            created: false,
            referred: false,
        })
    }

    fn define(&mut self, name: &str) -> Result<&mut Symbol, Stop> {
        if !name.starts_with('@') {
            return Err(Stop::fatal(format!("row id \"{name}\" does not begin with \"@\"")));
        }
        let symbol = self.symbol(name);
        if symbol.created {
            return Err(Stop::fatal(format!("row id \"{name}\" may only be specified on one --id option")));
        }
        symbol.created = true;
        Ok(symbol)
    }

    /// Binds `@name` to the row about to be inserted; returns its UUID.
    pub(crate) fn define_new(&mut self, name: &str) -> Result<Uuid, Stop> {
        Ok(self.define(name)?.uuid)
    }

    /// Binds `@name` to this existing row.
    pub(crate) fn define_as(&mut self, name: &str, uuid: Uuid) -> Result<(), Stop> {
        let symbol = self.define(name)?;
        // Earlier references could not know this row.
        let too_late = symbol.referred && symbol.uuid != uuid;
        symbol.uuid = uuid;
        symbol.referred = true;
        if too_late {
            return Err(Stop::fatal(format!(
                "row id \"{name}\" is used before the \"get\" command that defines it"
            )));
        }
        Ok(())
    }

    /// Checks the names after all commands.
    pub(crate) fn finish(&mut self) -> Result<(), Stop> {
        for (name, symbol) in &self.symbols {
            if !symbol.created {
                return Err(Stop::fatal(format!(
                    "row id \"{name}\" is referenced but never created (e.g. with \"-- --id={name} create ...\")"
                )));
            }
            if !symbol.referred {
                self.warnings.push(format!(
                    "row id \"{name}\" was created but no reference to it was inserted, \
                     so it will not actually appear in the database"
                ));
            }
        }
        Ok(())
    }
}
