// Puts printed modules together: each becomes a function, which a new @main calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hlo/type.h"

namespace tpj::hlo {

// Values are numbered in the order in which they are made, parameters first.
class Composer {
 public:
  int parameter(const Type& type);
  // The @main of a module that Builder::print made, for calls.
  int function(std::string_view module);
  // The first result; the others follow.
  int call(int function, const std::vector<int>& args, const std::vector<Type>& takes, const std::vector<Type>& gives);
  // Elements of a one-dimensional array of `size` elements from `index` on, as many as `type` has, in its shape.
  int element(int array, const Type& type, int64_t size, int64_t index);
  // Builder::barrier, of one value.
  int barrier(int value, const Type& type);
  // `aliases`: of each parameter, the result that may take its memory; -1: none.
  std::string print(const std::vector<int>& results, const std::vector<Type>& types,
                    const std::vector<int>& aliases) const;

 private:
  std::vector<Type> parameters_;
  std::vector<std::string> names_;  // of the values
  std::string functions_, body_;
  int n_functions_ = 0;
};

}  // namespace tpj::hlo
