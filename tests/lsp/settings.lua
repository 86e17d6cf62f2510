-- Neovim 0.11 or later, started with the settings of docs/editor.md as its init.lua, opens a spec and prints what it was told.
local function say(...) io.stdout:write(string.format(...) .. "\n") end
local function wait(what, found) assert(vim.wait(60000, found, 50), "not " .. what) end
wait("attached", function() return #vim.lsp.get_clients({ bufnr = 0 }) == 1 end)
say("attached %s", vim.lsp.get_clients({ bufnr = 0 })[1].name)
wait("told", function() return #vim.diagnostic.get(0) == 1 end)
local d = vim.diagnostic.get(0)[1]
say("diagnostic %d:%d %s %s", d.lnum + 1, d.col + 1, tostring(d.code), (d.message:gsub("\n", " | ")))
-- mend it, as a person would
vim.cmd("%s/quantise/quantize/")
wait("mended", function() return #vim.diagnostic.get(0) == 0 end)
say("mended: %d diagnostics", #vim.diagnostic.get(0))
local function ask(method, line, col)
  local p = { textDocument = vim.lsp.util.make_text_document_params(), position = { line = line, character = col } }
  for _, r in pairs(vim.lsp.buf_request_sync(0, method, p, 60000)) do
    assert(r.err == nil and r.error == nil, vim.inspect(r)); return r.result
  end
end
for i, text in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, false)) do
  local step, measure = text:find("quantize", 1, true), text:find("measure:", 1, true)
  if step then say("hover %d characters", #ask("textDocument/hover", i - 1, step + 1).contents.value) end
  if measure then
    local items = ask("textDocument/completion", i - 1, measure + 8)
    local names = {}
    for _, item in ipairs(items.items or items) do names[#names + 1] = item.label end
    say("completion %s", table.concat(names, " "))
  end
end
say("lens %s", ask("textDocument/codeLens", 0, 0)[1].command.title)
vim.cmd("qa!")
