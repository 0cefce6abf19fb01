//! PTX tokens to a module: entries, their parameters, variables, registers and instructions as written.

use std::collections::HashMap;

use crate::ParseError;
use crate::lex::{Placed, Token, tokens};

/// A value as an instruction names it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    /// A register by its number in [`Code::registers`].
    Register(usize),
    /// A special register, variable, parameter or label.
    Name(String),
    /// The bits of a number; a single-precision literal has its bits in the low half.
    Immediate(u64),
    /// `!%p`.
    Not(Box<Operand>),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base + offset]`; what follows the address inside the brackets is in `more`.
    Address { base: Box<Operand>, offset: i64, more: Vec<Operand> },
    /// `d|p`.
    Pair(Box<Operand>, Box<Operand>),
}

/// An instruction as written.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// The predicate register of the guard, and whether it is negated.
    pub guard: Option<(usize, bool)>,
    /// The opcode's words between the points.
    pub opcode: Vec<String>,
    pub operands: Vec<Operand>,
    pub line: usize,
    pub text: String,
}

/// A register as declared.
#[derive(Debug, Clone)]
pub(crate) struct Register {
    pub name: String,
    /// Bits of its type, 1 for a predicate.
    pub bits: u32,
}

/// The state spaces of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A variable in a state space.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub space: Space,
    /// Its first byte in the space.
    pub offset: u64,
}

/// A parameter of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name in the text.
    pub name: String,
    pub bytes: usize,
    pub(crate) offset: usize,
}

/// One entry before it is decoded.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub name: String,
    pub params: Vec<Param>,
    pub registers: Vec<Register>,
    pub statements: Vec<Statement>,
    pub labels: HashMap<String, usize>,
    pub variables: HashMap<String, Variable>,
    pub shared_bytes: u64,
    /// Where `.extern .shared` begins.
    pub dynamic_shared: u64,
    pub local_bytes: u64,
}

/// What a module's text holds.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub version: (u32, u32),
    pub target: String,
    pub entries: Vec<Code>,
    /// Initial bytes of the module's own `.const` and `.global` variables, one after the other.
    pub statics: Vec<u8>,
}

pub(crate) fn parse(text: &str) -> Result<Text, ParseError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { source: text, tokens: &tokens, at: 0, variables: HashMap::new(), shared: 0 };
    parser.module()
}

struct Parser<'a> {
    source: &'a str,
    tokens: &'a [Placed<'a>],
    at: usize,
    /// Variables of the module, seen by every entry.
    variables: HashMap<String, Variable>,
    /// Bytes of the module's own shared variables.
    shared: u64,
}

/// A declared variable: `.shared .align 16 .b8 name[64] = {...}`.
struct Declared {
    name: String,
    bytes: u64,
    align: u64,
    initial: Vec<u8>,
    is_extern: bool,
}

impl<'a> Parser<'a> {
    fn module(&mut self) -> Result<Text, ParseError> {
        let mut text = Text::default();
        let mut is_extern = false;
        while let Some(token) = self.peek() {
            match token {
                Token::Word(".version") => {
                    self.at += 1;
                    let word = self.word()?;
                    text.version = word
                        .split_once('.')
                        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
                        .ok_or_else(|| self.error(&format!(".version {word} is not of the form 7.0")))?;
                }
                Token::Word(".target") => {
                    self.at += 1;
                    self.word()?.clone_into(&mut text.target);
                    while self.eat(',') {
                        self.word()?;
                    }
                }
                Token::Word(".address_size") => {
                    self.at += 1;
                    let word = self.word()?;
                    if word != "64" {
                        return Err(self.error(&format!(".address_size {word}; only 64 is known")));
                    }
                }
                Token::Word(".extern") => {
                    is_extern = true;
                    self.at += 1;
                }
                Token::Word(".visible" | ".weak" | ".common") => self.at += 1,
                Token::Word(".entry") => {
                    self.at += 1;
                    let code = self.entry(&mut text.statics)?;
                    text.entries.push(code);
                }
                Token::Word(word @ (".global" | ".const" | ".shared")) => {
                    self.at += 1;
                    let declared = self.declared(is_extern)?;
                    is_extern = false;
                    self.module_variable(word, declared, &mut text.statics)?;
                }
                _ => return Err(self.error("this directive is not known")),
            }
        }
        if text.version == (0, 0) || text.target.is_empty() {
            return Err(ParseError { line: 1, what: "no .version or no .target".to_owned() });
        }
        Ok(text)
    }

    fn module_variable(
        &mut self,
        space: &str,
        declared: Declared,
        statics: &mut Vec<u8>,
    ) -> Result<(), ParseError> {
        let Declared { name, bytes, align, mut initial, is_extern } = declared;
        let variable = if space == ".shared" {
            // The dynamic part begins after all static ones: its offset is known when the entry ends.
            let offset = if is_extern { u64::MAX } else { self.shared.next_multiple_of(align) };
            if !is_extern {
                self.shared = offset + bytes;
            }
            Variable { space: Space::Shared, offset }
        } else if is_extern {
            return Err(self.error(&format!("{name} is defined in another module")));
        } else {
            let offset = (statics.len() as u64).next_multiple_of(align);
            statics.resize(usize::try_from(offset).unwrap_or(usize::MAX), 0);
            initial.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
            statics.append(&mut initial);
            Variable { space: Space::Const, offset }
        };
        self.variables.insert(name, variable);
        Ok(())
    }

    /// The rest of a variable's declaration, after its state space.
    fn declared(&mut self, is_extern: bool) -> Result<Declared, ParseError> {
        let (mut align, mut size) = (0, 0);
        let name = loop {
            let word = self.word()?;
            match word {
                ".align" => align = self.number()?,
                ".v2" => size = 2,
                ".v4" => size = 4,
                _ if word.starts_with('.') => {
                    let width = u64::from(width(word).ok_or_else(|| self.unknown(word))?).div_ceil(8);
                    size = size.max(1) * width;
                }
                _ => break word.to_owned(),
            }
        };
        let element = size;
        let mut bytes = size;
        while self.eat('[') {
            bytes *= if self.eat(']') { 0 } else { self.number_and(']')? };
        }
        if bytes > 1 << 30 {
            return Err(self.error(&format!("{name} has {bytes} bytes")));
        }
        let mut initial = Vec::new();
        if self.eat('=') {
            let list = self.eat('{');
            loop {
                let value = self.immediate()?;
                initial
                    .extend_from_slice(&value.to_le_bytes()[..usize::try_from(element.min(8)).unwrap_or(8)]);
                if !self.eat(',') {
                    break;
                }
            }
            if list {
                self.expect('}')?;
            }
        }
        self.expect(';')?;
        Ok(Declared { name, bytes, align: align.max(element).max(1), initial, is_extern })
    }

    fn entry(&mut self, statics: &mut Vec<u8>) -> Result<Code, ParseError> {
        let mut code = Code {
            name: self.word()?.to_owned(),
            variables: self.variables.clone(),
            shared_bytes: self.shared,
            ..Code::default()
        };
        if self.eat('(') {
            while !self.eat(')') {
                self.param(&mut code)?;
                self.eat(',');
            }
        }
        while self.peek() != Some(Token::Mark('{')) {
            // .maxntid 256, 1, 1 and its like bind the compiler, not the program.
            if self.peek().is_none() {
                return Err(self.error(&format!("entry {} has no body", code.name)));
            }
            self.at += 1;
        }
        self.at += 1;
        self.body(&mut code, statics)?;
        code.dynamic_shared = code.shared_bytes.next_multiple_of(16);
        for variable in code.variables.values_mut() {
            if variable.space == Space::Shared && variable.offset == u64::MAX {
                variable.offset = code.dynamic_shared;
            }
        }
        Ok(code)
    }

    fn param(&mut self, code: &mut Code) -> Result<(), ParseError> {
        let (mut align, mut size) = (0, 0);
        let name = loop {
            let word = self.word()?;
            match word {
                ".align" => align = usize::try_from(self.number()?).unwrap_or(0),
                ".param" | ".ptr" | ".global" | ".const" | ".shared" | ".local" => {
                    // `.ptr .global .align 16`: what the pointer points to, not the parameter.
                    if word == ".ptr" {
                        while let Some(Token::Word(".global" | ".const" | ".shared" | ".local")) = self.peek()
                        {
                            self.at += 1;
                        }
                        if self.peek() == Some(Token::Word(".align")) {
                            self.at += 2;
                        }
                    }
                }
                _ if word.starts_with('.') => {
                    size = width(word).ok_or_else(|| self.unknown(word))? as usize / 8;
                }
                _ => break word.to_owned(),
            }
        };
        let mut bytes = size;
        while self.eat('[') {
            bytes *= usize::try_from(self.number_and(']')?).unwrap_or(usize::MAX);
        }
        if bytes == 0 || bytes > 4096 {
            return Err(self.error(&format!("parameter {name} has {bytes} bytes")));
        }
        let end = code.params.last().map_or(0, |last| last.offset + last.bytes);
        let offset = end.next_multiple_of(align.max(size).max(1));
        code.variables.insert(name.clone(), Variable { space: Space::Param, offset: offset as u64 });
        code.params.push(Param { name, bytes, offset });
        Ok(())
    }

    fn body(&mut self, code: &mut Code, statics: &mut Vec<u8>) -> Result<(), ParseError> {
        // Blocks in braces hide the registers of those around them.
        let mut scopes: Vec<HashMap<String, usize>> = vec![HashMap::new()];
        while !scopes.is_empty() {
            match self.peek().ok_or_else(|| self.error(&format!("entry {} has no end", code.name)))? {
                Token::Mark('{') => {
                    scopes.push(HashMap::new());
                    self.at += 1;
                }
                Token::Mark('}') => {
                    scopes.pop();
                    self.at += 1;
                }
                Token::Mark(';') => self.at += 1,
                Token::Word(".reg") => {
                    self.at += 1;
                    if let Some(scope) = scopes.last_mut() {
                        self.registers(scope, &mut code.registers)?;
                    }
                }
                Token::Word(word @ (".shared" | ".local" | ".const" | ".global")) => {
                    self.at += 1;
                    let declared = self.declared(false)?;
                    match word {
                        ".shared" => place(code, Space::Shared, declared),
                        ".local" => place(code, Space::Local, declared),
                        _ => {
                            self.module_variable(word, declared, statics)?;
                            code.variables.extend(self.variables.clone());
                        }
                    }
                }
                Token::Word(".pragma") => self.skip_statement(),
                _ => self.statement(code, &scopes)?,
            }
        }
        Ok(())
    }

    /// `.reg .b32 %r<10>, %a;`
    fn registers(
        &mut self,
        scope: &mut HashMap<String, usize>,
        registers: &mut Vec<Register>,
    ) -> Result<(), ParseError> {
        let mut kind = self.word()?;
        if matches!(kind, ".v2" | ".v4") {
            kind = self.word()?;
        }
        let bits = width(kind).ok_or_else(|| self.unknown(kind))?;
        loop {
            let name = self.word()?;
            let count = if self.eat('<') { Some(self.number_and('>')?) } else { None };
            if count.unwrap_or(0) > 1 << 16 {
                return Err(self.error(&format!("{name}: more than 65536 registers")));
            }
            let names = count.map_or_else(
                || vec![name.to_owned()],
                |count| (0..count).map(|number| format!("{name}{number}")).collect(),
            );
            for name in names {
                scope.insert(name.clone(), registers.len());
                registers.push(Register { name, bits });
            }
            if !self.eat(',') {
                return self.expect(';');
            }
        }
    }

    fn statement(&mut self, code: &mut Code, scopes: &[HashMap<String, usize>]) -> Result<(), ParseError> {
        let first = self.tokens[self.at];
        let is_label = matches!(self.tokens.get(self.at + 1), Some(Placed { token: Token::Mark(':'), .. }));
        if let (Token::Word(label), true) = (first.token, is_label) {
            self.at += 2;
            return match code.labels.insert(label.to_owned(), code.statements.len()) {
                None => Ok(()),
                Some(_) => Err(self.error(&format!("label {label} stands twice"))),
            };
        }
        let mut guard = None;
        if self.eat('@') {
            let negated = self.eat('!');
            let name = self.word()?;
            let register = find(scopes, name).ok_or_else(|| self.unknown(name))?;
            guard = Some((register, negated));
        }
        let opcode = self.word()?.split('.').map(str::to_owned).collect();
        let mut operands = Vec::new();
        while self.peek() != Some(Token::Mark(';')) {
            operands.push(self.operand(scopes)?);
            if !self.eat(',') {
                break;
            }
        }
        let end = self.tokens.get(self.at).map_or(first.to, |token| token.from);
        self.expect(';')?;
        let text = self.source[first.from..end].split_whitespace().collect::<Vec<_>>().join(" ");
        code.statements.push(Statement { guard, opcode, operands, line: first.line, text });
        Ok(())
    }

    fn operand(&mut self, scopes: &[HashMap<String, usize>]) -> Result<Operand, ParseError> {
        if self.eat('!') {
            return Ok(Operand::Not(Box::new(self.operand(scopes)?)));
        }
        if self.eat('{') {
            return Ok(Operand::Vector(self.list(scopes, '}')?));
        }
        if self.eat('[') {
            let base = Box::new(self.operand(scopes)?);
            let offset = if self.eat('+') { self.immediate()?.cast_signed() } else { 0 };
            let more = if self.eat(',') {
                self.list(scopes, ']')?
            } else {
                self.expect(']')?;
                Vec::new()
            };
            return Ok(Operand::Address { base, offset, more });
        }
        let simple = match self.peek() {
            Some(Token::Word(word)) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
                self.at += 1;
                find(scopes, word).map_or_else(|| Operand::Name(word.to_owned()), Operand::Register)
            }
            _ => Operand::Immediate(self.immediate()?),
        };
        if self.eat('|') {
            return Ok(Operand::Pair(Box::new(simple), Box::new(self.operand(scopes)?)));
        }
        // A variable's address with an offset: `name+16`.
        if matches!(simple, Operand::Name(_)) && self.eat('+') {
            let offset = self.immediate()?.cast_signed();
            return Ok(Operand::Address { base: Box::new(simple), offset, more: Vec::new() });
        }
        Ok(simple)
    }

    fn list(&mut self, scopes: &[HashMap<String, usize>], end: char) -> Result<Vec<Operand>, ParseError> {
        let mut list = Vec::new();
        while !self.eat(end) {
            list.push(self.operand(scopes)?);
            if !self.eat(',') {
                self.expect(end)?;
                break;
            }
        }
        Ok(list)
    }

    /// A number's bits: `-5`, `0x1F`, `0f3F800000`, `0d3FF0000000000000`.
    fn immediate(&mut self) -> Result<u64, ParseError> {
        let negative = self.eat('-');
        let word = self.word()?;
        let bits = if let Some(hex) = word.strip_prefix("0f").or_else(|| word.strip_prefix("0F")) {
            u64::from_str_radix(hex, 16)
        } else if let Some(hex) = word.strip_prefix("0d").or_else(|| word.strip_prefix("0D")) {
            u64::from_str_radix(hex, 16)
        } else if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            u64::from_str_radix(hex.trim_end_matches('U'), 16)
        } else {
            word.trim_end_matches('U').parse()
        };
        let bits = bits.map_err(|_| self.error(&format!("{word:?} is no number")))?;
        Ok(if negative { bits.wrapping_neg() } else { bits })
    }

    fn number(&mut self) -> Result<u64, ParseError> {
        self.immediate()
    }

    fn number_and(&mut self, end: char) -> Result<u64, ParseError> {
        let number = self.immediate()?;
        self.expect(end)?;
        Ok(number)
    }

    fn skip_statement(&mut self) {
        while self.peek().is_some_and(|token| token != Token::Mark(';')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|placed| placed.token)
    }

    fn eat(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.eat(mark) { Ok(()) } else { Err(self.error(&format!("`{mark}` is missing"))) }
    }

    fn word(&mut self) -> Result<&'a str, ParseError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.error("a name is missing")),
        }
    }

    fn unknown(&self, word: &str) -> ParseError {
        self.error(&format!("{word} is not known"))
    }

    fn error(&self, what: &str) -> ParseError {
        let placed = self.tokens.get(self.at).or_else(|| self.tokens.last());
        let found = placed.map_or("", |placed| &self.source[placed.from..placed.to]);
        ParseError { line: placed.map_or(1, |placed| placed.line), what: format!("{what} (at {found:?})") }
    }
}

fn find(scopes: &[HashMap<String, usize>], name: &str) -> Option<usize> {
    scopes.iter().rev().find_map(|scope| scope.get(name).copied())
}

fn place(code: &mut Code, space: Space, declared: Declared) {
    let end = if space == Space::Shared { &mut code.shared_bytes } else { &mut code.local_bytes };
    let offset = end.next_multiple_of(declared.align);
    *end = offset + declared.bytes;
    code.variables.insert(declared.name, Variable { space, offset });
}

/// Bits of a type's word.
pub(crate) fn width(word: &str) -> Option<u32> {
    match word.trim_start_matches('.') {
        "pred" => Some(1),
        "f16x2" | "bf16x2" => Some(32),
        word => word
            .trim_start_matches(['b', 'u', 's', 'f'])
            .parse()
            .ok()
            .filter(|bits| matches!(bits, 8 | 16 | 32 | 64 | 128)),
    }
}
