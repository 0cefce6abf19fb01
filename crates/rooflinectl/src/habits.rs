//! What other programs call things, and what they are called here: the tables of `habits.txt`, which answers to wrong command lines
//! draw from.

const TABLES: &str = include_str!("habits.txt");

/// The rows of a table: what each is about, its names, and what to say.
pub fn rows(table: &str) -> impl Iterator<Item = [&'static str; 3]> {
    let begins = move |line: &str| line.strip_prefix('[') == Some(&format!("{table}]"));
    let lines = TABLES.lines().skip_while(move |line| !begins(line)).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter_map(|line| {
        let mut cells = line.splitn(3, '|').map(str::trim);
        Some([cells.next()?, cells.next()?, cells.next()?])
    })
}

/// What a table says of `name`, for the command `of` or for any.
pub fn tip(table: &str, of: &str, name: &str) -> Option<&'static str> {
    tips(table, of, name).next()
}

/// Everything that a table says of `name`.
pub fn tips(table: &str, of: &str, name: &str) -> impl Iterator<Item = &'static str> {
    let lists = move |names: &str| names.split(' ').any(|known| known == name);
    rows(table)
        .filter(move |[known, names, _]| (*known == of || *known == "*") && lists(names))
        .map(|[_, _, tip]| tip)
}

/// A tip with the command and the value that were typed where it leaves places for them: `<COMMAND>`, `<MODE>`.
pub fn filled(tip: &str, command: &str, value: Option<&str>) -> String {
    let tip = tip.replace("<COMMAND>", command);
    match tip.split_once('<').and_then(|(before, rest)| Some((before, rest.split_once('>')?))) {
        Some((before, (name, after))) => format!("{before}{}{after}", value.unwrap_or(name)),
        None => tip,
    }
}
