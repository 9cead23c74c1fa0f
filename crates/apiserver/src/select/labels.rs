//! Parses label selectors: `app=web,tier in (front,back),!old,size>2`.

use std::{iter::Peekable, vec};

use super::{Requirement, Test};
use crate::name_rules;

/// A token. A keyword is a word until an operator is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

/// The selector, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Sign("!") => {
                let requirement = parser.requirement();
                requirements.push(
                    requirement.map_err(|why| format!("unable to parse requirement: {why}"))?,
                );
            }
            other => return Err(expected(&other, "!, identifier, or 'end of string'")),
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Sign(",") => match parser.peek() {
                Token::Word(_) | Token::Sign("!") => {}
                other => return Err(expected(&other, "identifier after ','")),
            },
            other => return Err(expected(&other, "',' or 'end of string'")),
        }
    }
}

fn expected(found: &Token, what: &str) -> String {
    let found = match found {
        Token::Word(word) => word,
        Token::Sign(sign) => *sign,
        Token::End => "",
    };
    format!("found '{found}', expected: {what}")
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let (token, length) = match sign {
            Some(sign) => (Token::Sign(sign), sign.len()),
            None => {
                let ends = |letter: char| letter.is_whitespace() || "=!(),><".contains(letter);
                let length = rest.find(ends).unwrap_or(rest.len());
                (Token::Word(rest[..length].to_owned()), length)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    tokens
}

struct Parser {
    tokens: Peekable<vec::IntoIter<Token>>,
}

impl Parser {
    fn peek(&mut self) -> Token {
        self.tokens.peek().cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Sign("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(expected(&other, "identifier")),
        };
        if let Some(why) = name_rules::qualified_name(&key).first() {
            return Err(format!("key: Invalid value: {key:?}: {why}"));
        }
        let test = match self.peek() {
            _ if absent => Test::Absent,
            Token::End | Token::Sign(",") => Test::Exists,
            _ => self.test()?,
        };
        Ok(Requirement { key, test })
    }

    fn test(&mut self) -> Result<Test, String> {
        Ok(match self.next() {
            Token::Sign("=" | "==") => Test::In(vec![self.value()?]),
            Token::Sign("!=") => Test::NotIn(vec![self.value()?]),
            Token::Sign(">") => Test::Above(self.number()?),
            Token::Sign("<") => Test::Below(self.number()?),
            Token::Word(word) if word == "in" => Test::In(self.values()?),
            Token::Word(word) if word == "notin" => Test::NotIn(self.values()?),
            other => return Err(expected(&other, "in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: {why}"))
    }

    /// A value may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(_) => match self.next() {
                Token::Word(word) => valid(word),
                other => Err(expected(&other, "identifier")),
            },
            other => Err(expected(&other, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(expected(&other, "'('")),
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                Token::Word(_) => match self.next() {
                    Token::Word(word) => valid(word)?,
                    other => return Err(expected(&other, "identifier")),
                },
                _ => String::new(),
            };
            values.push(value);
            match self.next() {
                Token::Sign(",") => {}
                Token::Sign(")") => return Ok(values),
                other => return Err(expected(&other, "',' or ')'")),
            }
        }
    }
}

fn valid(value: String) -> Result<String, String> {
    match name_rules::label_value(&value).first() {
        Some(why) => Err(format!("values[0]: Invalid value: {value:?}: {why}")),
        None => Ok(value),
    }
}
