//! Rule: every source file of every crate opens with a `//!` page (except test files).

use super::File;

/// Finds files whose first comment is not module documentation.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.is_shipped()) {
        let first_item = first_item_line(file);
        let documented = file.source.comments.iter().any(|c| {
            let text = c.text.strip_prefix("//!").or_else(|| c.text.strip_prefix("/*!"));
            c.line < first_item && text.is_some_and(|t| t.trim().len() > 1)
        });
        if !documented {
            problems.push(format!(
                "{}:1: no module documentation: open with `//!`, what it is for, its invariants, who may call it",
                file.path
            ));
        }
    }
    problems
}

/// Line of the first token after the inner attributes `#![…]`; past the end if there is none.
fn first_item_line(file: &File) -> usize {
    let source = &file.source;
    let mut i = 0;
    while source.spells(i, &["#", "!", "["]) {
        i = source.closing(i + 2) + 1;
    }
    source.tokens.get(i).map_or(source.lines + 1, |t| t.line)
}
