//! The screen of `sluice top`: draws the view into any ratatui frame, and handles keys. No terminal in here.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::model::{Follower, Sorting, Table};
use super::text;

/// Lines that the keys for pages move.
const PAGE: usize = 10;
const KEYS: &str = "q quit  p pause  Tab table  Left/Right sort by column  r reverse  Up/Down scroll ports";

/// The tables of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Threads,
    Ports,
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) follower: Follower,
    pub(crate) paused: bool,
    pub(crate) over: bool,
    /// The table that keys sort.
    pub(crate) focus: Focus,
    pub(crate) threads_by: Sorting,
    pub(crate) ports_by: Sorting,
    /// Ports above the first one shown.
    pub(crate) scrolled: usize,
}

impl Screen {
    pub(crate) fn new(threads_by: Sorting, ports_by: Sorting) -> Screen {
        let follower = Follower::default();
        Screen {
            follower,
            paused: false,
            over: false,
            focus: Focus::Ports,
            threads_by,
            ports_by,
            scrolled: 0,
        }
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        let last = self.follower.view.ports.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.over = true,
            KeyCode::Char('q') | KeyCode::Esc => self.over = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('r') => self.sorting().reversed ^= true,
            KeyCode::Tab => {
                self.focus = if self.focus == Focus::Ports { Focus::Threads } else { Focus::Ports };
            }
            KeyCode::Right => self.sort_by_next(true),
            KeyCode::Left => self.sort_by_next(false),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled = (self.scrolled + 1).min(last),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE),
            KeyCode::PageDown => self.scrolled = (self.scrolled + PAGE).min(last),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = last,
            _ => {}
        }
    }

    fn sorting(&mut self) -> &mut Sorting {
        match self.focus {
            Focus::Threads => &mut self.threads_by,
            Focus::Ports => &mut self.ports_by,
        }
    }

    /// Sorts by the next or the previous column, or by none between the last and the first.
    fn sort_by_next(&mut self, forward: bool) {
        let view = &self.follower.view;
        let table = if self.focus == Focus::Ports { text::ports(view) } else { text::threads(view) };
        let columns = table.headings.len();
        let sorting = self.sorting();
        sorting.column = match (sorting.column, forward) {
            (None, true) => Some(0),
            (None, false) => Some(columns - 1),
            (Some(column), true) => Some(column + 1).filter(|next| *next < columns),
            (Some(column), false) => column.checked_sub(1),
        };
    }

    /// Draws it within the available space.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let view = &self.follower.view;
        let mut lines = vec![Line::from(self.head())];
        lines.extend(self.follower.notice.iter().map(|notice| {
            Line::styled(notice.clone(), Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED))
        }));
        lines.extend(view.datapaths.iter().flat_map(text::datapath).map(Line::from));
        lines.push(Line::default());
        let (mut threads, mut ports) = (text::threads(view), text::ports(view));
        threads.sort(self.threads_by);
        ports.sort(self.ports_by);
        lines.extend(self.table(&threads, Focus::Threads));
        lines.push(Line::default());
        let [top, rest, keys] = Layout::vertical([
            Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(lines), top);
        self.draw_ports(frame, rest, &ports);
        frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), keys);
    }

    fn head(&self) -> String {
        let head = text::head(&self.follower.view);
        if self.paused { head + " (paused)" } else { head }
    }

    fn draw_ports(&self, frame: &mut Frame<'_>, area: Rect, ports: &Table) {
        let mut lines = self.table(ports, Focus::Ports);
        let shown = usize::from(area.height).saturating_sub(1);
        // Visible rows are not scrolled away.
        let above = self.scrolled.min(ports.rows.len().saturating_sub(shown));
        lines.drain(1..=above);
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// Headings and rows; highlights the headings of the table that keys sort, and the sort column.
    fn table(&self, table: &Table, which: Focus) -> Vec<Line<'static>> {
        let by = if which == Focus::Ports { self.ports_by } else { self.threads_by };
        let focused = if which == self.focus { Modifier::BOLD } else { Modifier::empty() };
        let mut rows = table.aligned().into_iter();
        let heading = |(column, text): (usize, String)| {
            let sorted = by.column == Some(column);
            let style =
                Style::new().add_modifier(if sorted { focused | Modifier::REVERSED } else { focused });
            [Span::styled(text, style), Span::raw("  ")]
        };
        let headings = rows.next().into_iter().flatten();
        let mut lines = vec![headings.enumerate().flat_map(heading).collect::<Line<'_>>()];
        lines.extend(rows.map(|row| Line::from(row.join("  "))));
        lines
    }
}
