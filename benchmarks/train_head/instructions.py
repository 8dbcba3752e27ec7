"""Instructions of four kinds, written out from patterns: what a head is trained and judged on."""

from __future__ import annotations

import random
from itertools import product

_THEMES = """
the water cycle; black holes; coffee; the Roman Empire; bees; volcanoes; chess; the human heart;
glaciers; the moon; sourdough bread; electric cars; dolphins; photosynthesis; the internet;
vaccines; jazz music; the Great Wall of China; origami; earthquakes; solar panels; the stock
market; gardening; the Olympics; dinosaurs; rainbows; penguins; the printing press; tea; bridges;
recycling; the nervous system; poetry; trains; spiders; ocean tides; cheese; astronauts;
hurricanes; libraries; democracy; wind turbines; chocolate; sleep; soap; mirrors; clocks; salt;
batteries; maps; rice; kites; owls; forests; deserts; rivers; the violin; running; yoga; camping;
photography; cooking; painting; learning a language; time zones; gravity; magnets; atoms; cells;
DNA; planets; comets; insects; money; bicycles; aeroplanes; submarines; telescopes; microscopes;
the alphabet; numbers; calendars; weather forecasts; fog; snow; lightning; coral reefs; whales
"""
_CHAT = """
Explain {} to a child.; What is interesting about {}?; Write a short story about {}.; Why does {}
matter?; Tell me something surprising about {}.; Summarise what is known about {}.; Write an email
to a friend about {}.; What are the advantages and disadvantages of {}?; How did {} change the
world?; Write a paragraph about {}.; What would happen without {}?; Give me advice about {} as an
expert.; I am curious about {}. Where should I begin?; Write a conversation between two people
about {}.; Compare {} with something similar.; How does {} work?
"""
_TASKS = """
reverses a string; checks whether a number is prime; computes the factorial of a number; finds the
largest number in a list; counts the vowels in a string; sorts a list of numbers; removes
duplicates from a list; computes the Fibonacci sequence; checks whether a word is a palindrome;
sums the digits of a number; merges two dictionaries; reads a file and counts its lines; converts
Celsius to Fahrenheit; computes the average of a list; finds the common elements of two lists;
counts the words in a sentence; flattens a nested list; computes the greatest common divisor;
searches a sorted list; generates a random password; capitalises each word; finds the longest word
in a sentence; transposes a matrix; checks whether two strings are anagrams; rotates a list by n
places; validates an email address; computes compound interest; groups words by their first
letter; finds the second largest number; prints a multiplication table; implements a stack;
implements a queue; parses a CSV line; computes the median of a list; encodes a string with a
Caesar cipher
"""
_CODE = """
Write a Python function that {}.; Write a JavaScript function that {}.; Write a program in Java
that {}.; Write a C function that {}.; Show me code that {}, with comments.; Write a Python
function that {} and a test for it.; How do I write a function that {}?; Write a Python class that
{}.
"""
_ITEMS = """
fruits; animals; countries in Europe; cities; colours; vegetables; sports; musical instruments;
healthy breakfasts; books everyone should read; hobbies; birds; things to pack for a journey; ways
to save energy; tips for a job interview; programming languages; planets; inventions; flowers;
board games; ways to relax; uses of a paper clip; steps to plan a party; months of the year and
their weather; parts of a computer; kitchen tools; questions to ask a friend; ideas for a
birthday; famous scientists; rivers; mountains; habits of good students; exercises for beginners;
kinds of cheese; film genres; mistakes to avoid when cooking; trees
"""
_LISTS = """
List ten {}.; Give me a numbered list of {}.; Name five {} and say why.; Make a table of {} with
two columns.; List {} in alphabetical order.; Give me a bulleted list of {} with a short
description of each.; Write down {}, one per line.; Which {} do you know?
"""
_LINES = """
The quick brown fox jumps over the lazy dog.; I will not talk in class.; Practice makes perfect.;
The rain in Spain stays mainly in the plain.; A journey of a thousand miles begins with a single
step.; To be or not to be, that is the question.; She sells sea shells by the sea shore.; one two
three four five; red green blue yellow; Honesty is the best policy.; All work and no play makes
Jack a dull boy.; The early bird catches the worm.; Knowledge is power.; Hello, world!; Every
cloud has a silver lining.; The sky is blue and the grass is green.; Monday Tuesday Wednesday
Thursday Friday; 1 2 3 4 5 6 7 8 9 10; a b c d e f g; Time flies.
"""
_REPETITION = """
Repeat this ten times: {}; Copy the following sentence five times: {}; Write "{}" again and
again.; Say exactly this, then say it again: {}; Write this line eight times, numbered: {}; Repeat
after me, many times: {}
"""
_PATTERNS = {
    "chat": (_CHAT, _THEMES),
    "code": (_CODE, _TASKS),
    "lists": (_LISTS, _ITEMS),
    "repetition": (_REPETITION, _LINES),
}

#: Kinds of text, in the order in which figures are printed.
KINDS = tuple(_PATTERNS)

#: Instructions of each kind that are kept for judging.
HELD_OUT = 32


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.replace("\n", " ").split(";") if each.strip()]


def instructions(*, held_out: bool) -> list[tuple[str, str]]:
    """
    Draw up kind and text of each instruction.

    Args:
        held_out: Whether to give those that are kept for judging, or all the others.
    """
    found = []
    for kind, (patterns, fillings) in _PATTERNS.items():
        texts = [
            pattern.format(filling)
            for pattern, filling in product(_split(patterns), _split(fillings))
        ]
        random.Random(kind).shuffle(texts)
        chosen = texts[:HELD_OUT] if held_out else texts[HELD_OUT:]
        found += [(kind, text) for text in chosen]
    return found
