//! Expressions in which families say how a figure follows from the fields of a configuration.
//!
//! ```text
//! choice   condition ? value : value          lowest precedence
//! either   value ?? value                     the first that is there
//! logic    && ||   == != < <= > >= in   + -   * / %   ! -
//! postfix  list[index]   object.field
//! call     len max min floor ceil up(value, multiple) count(list, value) has(text, part) pow(a, b) log2
//! ```
//! A name is a key of the family, `i` (the layer), or a field of the configuration. What is missing makes every product
//! and sum that uses it missing, and counts as false.

use serde_json::Value;

/// A value while it is computed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datum<'a> {
    Missing,
    Number(f64),
    Text(&'a str),
    /// A list or an object.
    Json(&'a Value),
}

impl<'a> Datum<'a> {
    pub fn of(value: Option<&'a Value>) -> Self {
        match value {
            None | Some(Value::Null) => Self::Missing,
            Some(Value::Bool(flag)) => Self::Number(f64::from(u8::from(*flag))),
            Some(Value::Number(number)) => number.as_f64().map_or(Self::Missing, Self::Number),
            Some(Value::String(text)) => Self::Text(text),
            Some(other) => Self::Json(other),
        }
    }

    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Self::Missing => false,
            Self::Number(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Json(Value::Array(list)) => !list.is_empty(),
            Self::Json(_) => true,
        }
    }
}

/// Where names are looked up.
pub(super) trait Scope<'a> {
    /// The value of a name: of what the file says, or with what applies where it says nothing.
    fn look_up(&mut self, name: &str, with_defaults: bool) -> Datum<'a>;
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Number(f64),
    Text(String),
    Name(String),
    Item(Box<Node>, Box<Node>),
    Field(Box<Node>, String),
    Not(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Choice(Box<[Node; 3]>),
    Either(Vec<Node>),
    Call(String, Vec<Node>),
}

/// Binary operators by rising precedence.
const OPERATORS: &[&[&str]] =
    &[&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", " in "], &["+", "-"], &["*", "/", "%"]];

/// Reads forward through the text of an expression.
struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    fn take(&mut self, token: &str) -> bool {
        // A word stands alone: ` in ` is found by its first blank, which is skipped for everything else.
        let found = if token.starts_with(' ') { self.rest } else { self.rest.trim_start() };
        match found.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("{token:?} expected before {:?}", self.rest)) }
    }

    fn choice(&mut self) -> Result<Node, String> {
        let condition = self.either()?;
        if self.rest.trim_start().starts_with("??") || !self.take("?") {
            return Ok(condition);
        }
        let first = self.choice()?;
        self.expect(":")?;
        let second = self.choice()?;
        Ok(Node::Choice(Box::new([condition, first, second])))
    }

    fn either(&mut self) -> Result<Node, String> {
        let mut all = vec![self.binary(0)?];
        while self.take("??") {
            all.push(self.binary(0)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Either(all) })
    }

    fn binary(&mut self, level: usize) -> Result<Node, String> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            left = Node::Binary(operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, String> {
        if !self.rest.trim_start().starts_with("!=") && self.take("!") {
            return Ok(Node::Not(Box::new(self.unary()?)));
        }
        if self.take("-") {
            return Ok(Node::Binary("-", Box::new(Node::Number(0.0)), Box::new(self.unary()?)));
        }
        let mut node = self.primary()?;
        loop {
            if self.take("[") {
                let index = self.choice()?;
                self.expect("]")?;
                node = Node::Item(Box::new(node), Box::new(index));
            } else if self.take(".") {
                node = Node::Field(Box::new(node), self.word());
            } else {
                return Ok(node);
            }
        }
    }

    fn word(&mut self) -> String {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.rest = &rest[end..];
        rest[..end].to_owned()
    }

    fn primary(&mut self) -> Result<Node, String> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("'") {
            let (text, rest) = self.rest.split_once('\'').ok_or("a quote is not closed")?;
            self.rest = rest;
            return Ok(Node::Text(text.to_owned()));
        }
        let word = self.word();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let fraction =
                if self.rest.starts_with('.') && self.take(".") { self.word() } else { String::new() };
            let number =
                format!("{word}.{fraction}0").parse().map_err(|_| format!("{word:?} is not a number"))?;
            return Ok(Node::Number(number));
        }
        if word.is_empty() {
            return Err(format!("a value expected before {:?}", self.rest));
        }
        if !self.take("(") {
            return Ok(Node::Name(word));
        }
        let mut arguments = vec![self.choice()?];
        while self.take(",") {
            arguments.push(self.choice()?);
        }
        self.expect(")")?;
        Ok(Node::Call(word, arguments))
    }
}

impl Node {
    /// Parses a whole expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let node = parser.choice()?;
        if parser.rest.trim().is_empty() { Ok(node) } else { Err(format!("{:?} is left over", parser.rest)) }
    }

    /// Parses expressions that commas divide.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let mut parser = Parser { rest: text };
        let mut all = vec![parser.choice()?];
        while parser.take(",") {
            all.push(parser.choice()?);
        }
        if parser.rest.trim().is_empty() { Ok(all) } else { Err(format!("{:?} is left over", parser.rest)) }
    }

    pub fn evaluate<'a>(&'a self, scope: &mut dyn Scope<'a>) -> Datum<'a> {
        match self {
            Self::Number(number) => Datum::Number(*number),
            Self::Text(text) => Datum::Text(text),
            Self::Name(name) => scope.look_up(name, true),
            Self::Not(node) => Datum::Number(f64::from(u8::from(!node.evaluate(scope).is_true()))),
            Self::Field(object, name) => match object.evaluate(scope) {
                Datum::Json(value) => Datum::of(value.get(name)),
                _ => Datum::Missing,
            },
            Self::Item(list, index) => item(&list.evaluate(scope), &index.evaluate(scope)),
            Self::Choice(parts) => {
                let [condition, first, second] = &**parts;
                if condition.evaluate(scope).is_true() { first } else { second }.evaluate(scope)
            }
            Self::Either(all) => either(all, scope),
            Self::Binary(operator, left, right) => binary(operator, left, right, scope),
            Self::Call(name, arguments) => call(name, arguments, scope),
        }
    }

    /// The names that may stand for the whole expression, in the order in which they are asked.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Name(name) => vec![name],
            Self::Either(all) => all.iter().flat_map(Self::names).collect(),
            Self::Choice(parts) => parts[1..].iter().flat_map(Self::names).collect(),
            _ => Vec::new(),
        }
    }

    /// Every name in the expression.
    pub fn words(&self) -> Vec<&str> {
        if let Self::Name(name) = self { vec![name] } else { self.parts().flat_map(Self::words).collect() }
    }

    /// Every function that the expression calls.
    #[cfg(test)]
    pub fn calls(&self) -> Vec<&str> {
        let own = if let Self::Call(name, _) = self { Some(name.as_str()) } else { None };
        self.parts().flat_map(Self::calls).chain(own).collect()
    }

    /// The expressions that it is made of.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        let (pair, list): (Vec<&Self>, &[Self]) = match self {
            Self::Number(_) | Self::Text(_) | Self::Name(_) => (Vec::new(), &[]),
            Self::Not(node) | Self::Field(node, _) => (vec![&**node], &[]),
            Self::Item(a, b) | Self::Binary(_, a, b) => (vec![&**a, &**b], &[]),
            Self::Choice(parts) => (Vec::new(), &**parts),
            Self::Either(all) | Self::Call(_, all) => (Vec::new(), all),
        };
        pair.into_iter().chain(list)
    }
}

/// The first that the file gives, under whichever name; only then what applies where it says nothing.
fn either<'a>(all: &'a [Node], scope: &mut dyn Scope<'a>) -> Datum<'a> {
    for node in all {
        if let Node::Name(name) = node {
            let given = scope.look_up(name, false);
            if given != Datum::Missing {
                return given;
            }
        }
    }
    let mut values = all.iter().map(|node| node.evaluate(scope));
    values.find(|value| *value != Datum::Missing).unwrap_or(Datum::Missing)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index below zero finds the first"
)]
fn item<'a>(list: &Datum<'a>, index: &Datum<'a>) -> Datum<'a> {
    match (list, index) {
        (Datum::Json(value), Datum::Number(index)) => Datum::of(value.get(*index as usize)),
        (Datum::Json(value), Datum::Text(key)) => Datum::of(value.get(*key)),
        (Datum::Text(text), Datum::Number(index)) => {
            let index = *index as usize;
            text.get(index..index.saturating_add(1)).map_or(Datum::Missing, Datum::Text)
        }
        _ => Datum::Missing,
    }
}

fn binary<'a>(operator: &str, left: &'a Node, right: &'a Node, scope: &mut dyn Scope<'a>) -> Datum<'a> {
    let truth = |value: bool| Datum::Number(f64::from(u8::from(value)));
    let left = left.evaluate(scope);
    match operator {
        "&&" => return truth(left.is_true() && right.evaluate(scope).is_true()),
        "||" => return truth(left.is_true() || right.evaluate(scope).is_true()),
        _ => {}
    }
    let right = right.evaluate(scope);
    match operator {
        "==" => return truth(left == right),
        "!=" => return truth(left != right),
        " in " => {
            return truth(match right {
                Datum::Json(Value::Array(list)) => list.iter().any(|value| Datum::of(Some(value)) == left),
                // Numbers that commas divide.
                Datum::Text(text) => text
                    .split(',')
                    .any(|part| part.trim().parse().is_ok_and(|number| Datum::Number(number) == left)),
                _ => false,
            });
        }
        _ => {}
    }
    let (Some(a), Some(b)) = (left.number(), right.number()) else { return Datum::Missing };
    match operator {
        "<=" => truth(a <= b),
        ">=" => truth(a >= b),
        "<" => truth(a < b),
        ">" => truth(a > b),
        "+" => Datum::Number(a + b),
        "-" => Datum::Number(a - b),
        "*" => Datum::Number(a * b),
        "/" if b != 0.0 => Datum::Number(a / b),
        "%" if b != 0.0 => Datum::Number(a % b),
        _ => Datum::Missing,
    }
}

/// Functions and how many arguments each takes at least.
#[cfg(test)]
pub(super) const FUNCTIONS: &[&str] =
    &["len", "max", "min", "floor", "ceil", "up", "count", "has", "pow", "log2"];

#[expect(clippy::cast_precision_loss, reason = "lists are short")]
fn call<'a>(name: &str, arguments: &'a [Node], scope: &mut dyn Scope<'a>) -> Datum<'a> {
    let values: Vec<Datum<'a>> = arguments.iter().map(|node| node.evaluate(scope)).collect();
    let list = match values.first() {
        Some(Datum::Json(Value::Array(list))) => Some(list),
        _ => None,
    };
    let numbers: Vec<f64> = match list {
        Some(list) => list.iter().filter_map(Value::as_f64).collect(),
        None => values.iter().filter_map(Datum::number).collect(),
    };
    let one = |value: Option<f64>| value.map_or(Datum::Missing, Datum::Number);
    match (name, values.as_slice()) {
        ("len", [Datum::Text(text)]) => Datum::Number(text.len() as f64),
        ("len", [Datum::Json(Value::Object(map))]) => Datum::Number(map.len() as f64),
        ("len", _) => one(list.map(|list| list.len() as f64)),
        ("has", [Datum::Text(text), Datum::Text(part)]) => {
            Datum::Number(f64::from(u8::from(text.contains(part))))
        }
        ("count", [_, wanted]) => {
            let same = |value: &&Value| Datum::of(Some(value)) == *wanted;
            one(list.map(|list| list.iter().filter(same).count() as f64))
        }
        ("max", _) => one(numbers.into_iter().reduce(f64::max)),
        ("min", _) => one(numbers.into_iter().reduce(f64::min)),
        ("pow", [Datum::Number(base), Datum::Number(power)]) => Datum::Number(base.powf(*power)),
        ("log2", [Datum::Number(number)]) if *number > 0.0 => Datum::Number(number.log2()),
        ("floor", [Datum::Number(number)]) => Datum::Number(number.floor()),
        ("ceil", [Datum::Number(number)]) => Datum::Number(number.ceil()),
        ("up", [Datum::Number(number), Datum::Number(multiple)]) if *multiple > 0.0 => {
            Datum::Number((number / multiple).ceil() * multiple)
        }
        _ => Datum::Missing,
    }
}
