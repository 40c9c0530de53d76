//! [`Table`]: rows of values, printed as a list, a table, CSV or JSON.

use ovsdb::schema::ColumnType;
use ovsdb::value::{Datum, datum_to_json};
use serde_json::{Value, json};

use super::text::{Style, datum_text};

/// Output format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One line a column, an empty line between rows.
    List,
    /// Columns side by side.
    Table,
    /// RFC 4180.
    Csv,
    /// One object with `headings` and `data`.
    Json,
}

/// Output format of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellFormat {
    /// As text.
    Text(Style),
    /// As the JSON of the protocol.
    Json,
}

/// The whole of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableStyle {
    pub(crate) format: Format,
    pub(crate) cells: CellFormat,
    pub(crate) headings: bool,
    pub(crate) pretty: bool,
    /// Maximum bytes of a cell in the format table, unless its heading is wider; 0 is no limit.
    pub(crate) max_column_width: usize,
}

impl Default for TableStyle {
    fn default() -> Self {
        TableStyle {
            format: Format::List,
            cells: CellFormat::Text(Style::Quoted),
            headings: true,
            pretty: false,
            max_column_width: 0,
        }
    }
}

/// Headings and cells; every row has one cell per heading.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<(Datum, ColumnType)>>,
}

impl Table {
    /// Its text. `first`: no table was printed before; later ones follow an empty line.
    pub(crate) fn print(&self, style: &TableStyle, first: bool) -> String {
        let body = match style.format {
            Format::List => self.list(style),
            Format::Table => self.side_by_side(style),
            Format::Csv => self.csv(style),
            Format::Json => return self.json(style),
        };
        if first { body } else { format!("\n{body}") }
    }

    fn cells(&self, style: &TableStyle) -> Vec<Vec<String>> {
        let write = |(datum, ty): &(Datum, ColumnType)| match style.cells {
            CellFormat::Text(text) => datum_text(datum, ty, text),
            CellFormat::Json => datum_to_json(datum).to_string(),
        };
        self.rows.iter().map(|row| row.iter().map(write).collect()).collect()
    }

    fn list(&self, style: &TableStyle) -> String {
        let mut out = String::new();
        for (number, row) in self.cells(style).iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            for (heading, cell) in self.headings.iter().zip(row) {
                if style.headings {
                    out.push_str(&format!("{heading:<20}: "));
                }
                out.push_str(cell);
                out.push('\n');
            }
        }
        out
    }

    fn side_by_side(&self, style: &TableStyle) -> String {
        let rows = self.cells(style);
        let limit = style.max_column_width;
        let widest = |column: usize| {
            let heading = if style.headings { self.headings[column].len() } else { 0 };
            let cells = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
            heading.max(if limit > 0 { cells.min(limit) } else { cells })
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(widest).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (number, (cell, width)) in cells.zip(&widths).enumerate() {
                if number > 0 {
                    line.push(' ');
                }
                let cell = cut(cell, *width);
                line.push_str(cell);
                line.push_str(&" ".repeat(width - cell.len()));
            }
            format!("{}\n", line.trim_end_matches(' '))
        };
        let mut out = String::new();
        if style.headings {
            out.push_str(&line(&mut self.headings.iter().map(String::as_str)));
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            out.push_str(&line(&mut rules.iter().map(String::as_str)));
        }
        for row in &rows {
            out.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        out
    }

    fn csv(&self, style: &TableStyle) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
            format!("{}\n", cells.join(","))
        };
        let head = if style.headings { line(&self.headings) } else { String::new() };
        head + &self.cells(style).iter().map(|row| line(row)).collect::<String>()
    }

    fn json(&self, style: &TableStyle) -> String {
        let row =
            |row: &Vec<(Datum, ColumnType)>| row.iter().map(|(datum, _)| datum_to_json(datum)).collect();
        let data: Vec<Value> = self.rows.iter().map(row).collect();
        let whole = json!({"data": data, "headings": self.headings});
        let mut out = String::new();
        if style.pretty {
            pretty(&whole, 0, &mut out);
        } else {
            out = whole.to_string();
        }
        out.push('\n');
        out
    }
}

/// The first `limit` bytes, whole characters only.
fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

fn csv_cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// JSON with two spaces per level and closing brackets at the end of the last line, as indented by OVS.
fn pretty(value: &Value, depth: usize, out: &mut String) {
    let begin = |out: &mut String, number: usize| {
        if number > 0 {
            out.push(',');
        }
        out.push('\n');
        out.push_str(&"  ".repeat(depth + 1));
    };
    match value {
        Value::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                begin(out, number);
                pretty(item, depth + 1, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (number, (name, item)) in members.iter().enumerate() {
                begin(out, number);
                out.push_str(&format!("{}: ", super::text::quote(name)));
                pretty(item, depth + 1, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}
