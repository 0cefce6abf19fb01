//! Columns that line up.

/// On which side of its column a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The heading of a column, and what stands there in a row.
pub type Column<R> = (&'static str, fn(&R) -> Option<String>);

/// A table under construction.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns: words are aligned to the left, names that begin with `>` to the right.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        let column = |name: &&str| match name.strip_prefix('>') {
            Some(name) => (name.to_owned(), Side::Right),
            None => ((*name).to_owned(), Side::Left),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// A table of these rows. A column that is empty in all of them is left out; elsewhere an empty cell is `-`.
    #[must_use]
    pub fn of<R>(rows: &[R], columns: &[Column<R>]) -> Self {
        let shown: Vec<_> =
            columns.iter().filter(|(_, cell)| rows.iter().any(|row| cell(row).is_some())).collect();
        let mut table = Self::new(&shown.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for row in rows {
            table.row(shown.iter().map(|(_, cell)| cell(row).unwrap_or_else(|| "-".to_owned())));
        }
        table
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table with its header, two spaces in front of every line.
    #[must_use]
    pub fn render(&self) -> String {
        let cell = |row: &[String], index: usize| row.get(index).cloned().unwrap_or_default();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, _))| {
                self.rows
                    .iter()
                    .map(|row| cell(row, index).chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(name.chars().count())
            })
            .collect();
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let has_header = header.iter().any(|name| !name.is_empty());
        let mut text = String::new();
        for row in has_header.then_some(&header).into_iter().chain(&self.rows) {
            let mut line = String::from(" ");
            for (index, ((_, side), width)) in self.columns.iter().zip(&widths).enumerate() {
                let cell = cell(row, index);
                let padding = " ".repeat(width - cell.chars().count());
                line.push(' ');
                line.push_str(&match side {
                    Side::Left => cell + &padding,
                    Side::Right => padding + &cell,
                });
                line.push(' ');
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new(&["name", ">µs"]);
        table.row(["a".to_owned(), "117".to_owned()]);
        table.row(["longer".to_owned()]);
        assert_eq!(table.render(), "  name     µs\n  a       117\n  longer\n");
    }
}
