//! The tree of `show`, and commands without effect on the database.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::schema::TableIx;
use ovsdb::value::{Atom, Uuid};

use super::Stop;
use super::context::Context;
use super::names::find_table;
use super::options::Invocation;
use super::text::{Style, datum_text};
use super::work::{Row, Work};

/// A table in the tree: its name column, and its other columns in order.
struct Shown {
    table: &'static str,
    name: Option<&'static str>,
    columns: &'static [&'static str],
}

const SHOWN: [Shown; 6] = [
    Shown { table: "Open_vSwitch", name: None, columns: &["manager_options", "bridges", "ovs_version"] },
    Shown {
        table: "Bridge",
        name: Some("name"),
        columns: &["controller", "fail_mode", "datapath_type", "ports"],
    },
    Shown { table: "Port", name: Some("name"), columns: &["tag", "trunks", "interfaces"] },
    Shown { table: "Interface", name: Some("name"), columns: &["type", "options", "error"] },
    Shown { table: "Controller", name: Some("target"), columns: &["is_connected"] },
    Shown { table: "Manager", name: Some("target"), columns: &["is_connected"] },
];

fn shown(work: &Work<'_>, table: TableIx) -> Option<&'static Shown> {
    let name = &*work.table_schema(table).name;
    SHOWN.iter().find(|shown| shown.table == name)
}

/// Keywords by table: `--filter=TABLE(KEYWORD|...),...` of OVS 4.0. A row of such a table is shown, with all below it,
/// if its text or the text of a row below it has one of the keywords. Letter case does not count.
struct Filters(BTreeMap<TableIx, Vec<String>>);

impl Filters {
    fn parse(text: &str, work: &Work<'_>) -> Result<Filters, Stop> {
        let mut keywords: BTreeMap<TableIx, Vec<String>> = BTreeMap::new();
        for filter in text.split(',').filter(|filter| !filter.is_empty()) {
            let Some((table, rest)) = filter.split_once('(') else {
                return Err(Stop::fatal(format!("filter {filter}: give TABLE(KEYWORD[|KEYWORD...])")));
            };
            let Some(words) = rest.strip_suffix(')') else {
                return Err(Stop::fatal(format!("filter {filter}: missing closing ')'")));
            };
            let table = find_table(work, table)?;
            if shown(work, table).is_none() {
                let name = &work.table_schema(table).name;
                return Err(Stop::fatal(format!("filter {filter}: show has no rows of table {name}")));
            }
            let words = words.split('|').filter(|word| !word.is_empty()).map(str::to_lowercase);
            keywords.entry(table).or_default().extend(words);
        }
        Ok(Filters(keywords))
    }

    /// Whether a row with this text is shown.
    fn admit(&self, table: TableIx, text: &str) -> bool {
        let Some(keywords) = self.0.get(&table) else { return true };
        let text = text.to_lowercase();
        keywords.iter().any(|keyword| text.contains(keyword))
    }
}

struct Tree<'w, 'a> {
    work: &'w Work<'a>,
    filters: Filters,
    text: String,
    /// Tables on the path to here: a reference back to one of them is not followed.
    open: BTreeSet<TableIx>,
}

impl Tree<'_, '_> {
    fn line(&mut self, level: usize, text: &str) {
        self.text.push_str(&" ".repeat(level * 4));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn row(&mut self, row: Row, level: usize) -> Result<(), Stop> {
        let Some(shown) = shown(self.work, row.table) else { return Ok(()) };
        let start = self.text.len();
        match shown.name {
            Some(name) => {
                let column = self.work.column(row.table, name)?;
                let ty = &self.work.column_schema(row.table, column).ty;
                let name = datum_text(&self.work.get(row, column), ty, Style::Quoted);
                self.line(level, &format!("{} {name}", shown.table));
            }
            None => self.line(level, &row.uuid.to_string()),
        }
        if !self.open.insert(row.table) {
            return Ok(());
        }
        for name in shown.columns {
            self.column(row, name, level + 1)?;
        }
        self.open.remove(&row.table);
        if !self.filters.admit(row.table, &self.text[start..]) {
            self.text.truncate(start);
        }
        Ok(())
    }

    fn column(&mut self, row: Row, name: &str, level: usize) -> Result<(), Stop> {
        let column = self.work.column(row.table, name)?;
        let schema = self.work.column_schema(row.table, column);
        let datum = self.work.get(row, column);
        if let Some(reference) = &schema.ty.key.reference {
            let table = reference.table_ix;
            let uuids: Vec<Uuid> = datum.atoms().iter().filter_map(Atom::as_uuid).collect();
            for row in uuids.into_iter().map(|uuid| Row { table, uuid }) {
                if self.work.exists(row) {
                    self.row(row, level)?;
                }
            }
        } else if datum != schema.default {
            let text = format!("{name}: {}", datum_text(&datum, &schema.ty, Style::Quoted));
            self.line(level, &text);
        }
        Ok(())
    }
}

pub(crate) fn show(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = ctx.work.table("Open_vSwitch")?;
    let filters = Filters::parse(call.options.get("filter").map_or("", String::as_str), &ctx.work)?;
    let mut tree = Tree { work: &ctx.work, filters, text: String::new(), open: BTreeSet::new() };
    for row in ctx.work.rows(table) {
        tree.row(row, 0)?;
    }
    let text = tree.text;
    ctx.say(text.strip_suffix('\n').unwrap_or(&text));
    Ok(())
}

/// Every command first creates the root record.
pub(crate) fn init(_ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    Ok(())
}

pub(crate) fn comment(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    ctx.comments.push(call.args.join(" "));
    Ok(())
}
