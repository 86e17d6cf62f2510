-- A headless Neovim opens a spec through its own LSP client, and prints what it was told.
local function say(...) io.stdout:write(string.format(...) .. "\n") end
vim.o.swapfile = false
local id = vim.lsp.start_client({ name = "opendp_sim", cmd = { "opendp-sim", "lsp" }, root_dir = vim.fn.getcwd() })
vim.cmd("edit " .. vim.env.SPEC)
vim.lsp.buf_attach_client(0, id)
local client = vim.lsp.get_client_by_id(id)
assert(vim.wait(60000, function() return client.initialized end, 50), "no answer")
local function diagnostics(n) return vim.wait(60000, function() return #vim.diagnostic.get(0) == n end, 50) end
assert(diagnostics(1), "no diagnostic: " .. vim.inspect(vim.diagnostic.get(0)))
local d = vim.diagnostic.get(0)[1]
say("diagnostic %d:%d %s %s", d.lnum + 1, d.col + 1, tostring(d.user_data and d.user_data.lsp.code or d.code), d.message:gsub("\n", " | "))
-- mend it, as a person would
vim.cmd("%s/quantise/quantize/")
assert(diagnostics(0), "the diagnostic stays")
say("mended: %d diagnostics", #vim.diagnostic.get(0))
local function ask(method, line, col)
  local p = { textDocument = vim.lsp.util.make_text_document_params(), position = { line = line, character = col } }
  local found = vim.lsp.buf_request_sync(0, method, p, 60000)
  for _, r in pairs(found) do assert(r.error == nil, vim.inspect(r.error)); return r.result end
end
local function find(word)
  for i, text in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, false)) do
    local c = text:find(word, 1, true); if c then return i - 1, c - 1 end
  end
end
local l, c = find("quantize")
local hover = ask("textDocument/hover", l, c + 2)
say("hover %s", vim.split(hover.contents.value, "\n")[1] .. " ... " .. #hover.contents.value .. " characters")
l, c = find("measure:")
local items = ask("textDocument/completion", l, c + 9)
items = items.items or items
local names = {}
for _, i in ipairs(items) do names[#names + 1] = i.label end
say("completion %s", table.concat(names, " "))
local lens = ask("textDocument/codeLens", 0, 0)
say("lens %d: %s", lens[1].range.start.line + 1, lens[1].command.title)
vim.lsp.stop_client(id)
vim.cmd("qa!")
