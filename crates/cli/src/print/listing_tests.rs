//! Tests of tables at several terminal widths.

use super::*;

const IDS: [&str; 2] = ["run_1m7qgj6ynqr7r06x4dxr6", "run_1m7qgj6kd4fwtwnbcza85"];
const TITLES: [&str; 2] = ["Deploy the app to production, then report", "What is the time?"];

/// Returns a table with the columns of `throughline runs`.
fn columns() -> Vec<Column> {
    let both = |text: &'static str| [text, text].into_iter();
    vec![
        Column::new("run", IDS.into_iter()).unwrapped(),
        Column::new("title", TITLES.into_iter()).truncated(),
        Column::new("status", ["waiting", "completed"].into_iter()).unwrapped(),
        Column::new("model", both("sim/claude-sonnet-5-5")).unwrapped().droppable(),
        Column::numbers("cost", both("$0.0125")).unwrapped().droppable(),
        Column::new("thread", both("thread_1m7qgj6yp7sxgp3bn7erz")).unwrapped().droppable(),
    ]
}

#[test]
fn tables_fit_and_keep_whole_ids_at_every_width() {
    for (room, heads) in [
        (60, "run title status"),
        (80, "run title status model"),
        (100, "run title status model cost"),
        (200, "run title status model cost thread"),
    ] {
        let page = anstream::adapter::strip_str(&table_in(columns(), room)).to_string();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 3, "{page}");
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>().join(" "), heads, "{page}");
        for (line, id) in lines[1..].iter().zip(IDS) {
            assert!(line.width() <= room && line.starts_with(id), "{room}: {page}");
        }
    }
}

#[test]
fn rows_are_stacked_if_the_columns_do_not_fit() {
    let mut columns = columns();
    for column in &mut columns {
        column.is_droppable = false;
    }
    let page = anstream::adapter::strip_str(&table_in(columns, 60)).to_string();
    let expected = "\
run_1m7qgj6ynqr7r06x4dxr6
  title   Deploy the app to production, then report
  status  waiting
  model   sim/claude-sonnet-5-5
  cost    $0.0125
  thread  thread_1m7qgj6yp7sxgp3bn7erz
";
    assert!(page.starts_with(expected), "{page}");
}

#[test]
fn columns_without_heads_are_stacked_without_labels() {
    let columns = vec![
        Column::numbers("", ["error"].into_iter()).unwrapped(),
        Column::new("", ["anthropic/thinking-missing-before-tool-use"].into_iter()).unwrapped(),
        Column::new("", ["The thinking before a tool call is missing."].into_iter()),
    ];
    let page = anstream::adapter::strip_str(&table_in(columns, 60)).to_string();
    let expected = "error  anthropic/thinking-missing-before-tool-use\n  The thinking before a tool call \
                    is missing.\n";
    assert_eq!(page, expected);
}
