//! Tests: the laws (`laws`), masks as Open vSwitch makes them (`observed`), and the parts one by one (`parts`), all on `plain` rules.

mod laws;
mod observed;
mod parts;
mod plain;
mod text;
