// Reading MLIR text without a parser: strings and comments set aside, operations and their signatures found by counting
// brackets. Only program_check.cpp needs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpj::pjrt {

// One operation of interest. Views into the ProgramText.
struct OpText {
  std::string_view name;  // without its dialect: "all_reduce", "custom_call"
  std::string_view body;  // from the name to the signature, strings and comments blanked: operands, attributes, regions
  std::string_view operands;  // "tensor<4xf32>, tensor<4xf32>"; empty if the signature has another form
  std::string_view results;   // "tensor<4xf32>", without parentheses
};

class ProgramText {
 public:
  // `text` must outlive this.
  explicit ProgramText(std::string_view text);

  // The text with the contents of strings and comments blanked, position by position.
  std::string_view blanked() const { return blanked_; }

  // All operations in quoted ("stablehlo.x"(...)) or plain (stablehlo.x ...) form with one of these names, whatever the
  // dialect and version suffix. An operation without a readable end is left out: the plugin's parser will complain.
  std::vector<OpText> find_ops(const std::vector<std::string_view>& names) const;

  // The original characters behind a view into blanked().
  std::string_view original(std::string_view part) const;

  // The value that follows "key =" in `part`, blanked, up to a top-level comma or closing bracket; "#alias" is replaced
  // by its definition. Nothing when the key is absent.
  std::optional<std::string_view> attribute(std::string_view part, std::string_view key) const;

  // "#alias" -> what it stands for; anything else unchanged.
  std::string_view resolve_alias(std::string_view value) const;

 private:
  std::optional<OpText> read_op(std::string_view name, size_t after_name) const;

  std::string_view text_;
  std::string blanked_;
  struct Quoted {
    size_t begin, end;
  };
  std::vector<Quoted> strings_;  // contents, without the quotes
};

// First position at or after `from` where one of `stops` stands outside brackets, or npos. The arrow -> is no bracket.
size_t find_outside_brackets(std::string_view s, size_t from, std::string_view stops);
// Occurrences of `word` that are whole identifiers; npos when there is none from `from` on.
size_t find_word(std::string_view s, std::string_view word, size_t from);
std::string_view trim(std::string_view s);
// Splits at top-level commas; an empty string has no parts.
std::vector<std::string_view> split(std::string_view s);

}  // namespace tpj::pjrt
