(() => {
  'use strict'
  const all = () => document.querySelectorAll('main details')
  const setOpen = (open) => all().forEach((element) => { element.open = open })
  const tools = document.getElementById('tools')
  if (tools) tools.hidden = false
  const on = (id, act) => document.getElementById(id)?.addEventListener('click', act)
  on('open', () => setOpen(true))
  on('close', () => setOpen(false))
  const errors = [...document.querySelectorAll('main .call.bad, main .event.bad, main pre.bad')]
  const next = document.getElementById('error')
  if (next && errors.length === 0) next.hidden = true
  let at = -1
  on('error', () => {
    at = (at + 1) % errors.length
    const element = errors[at]
    if (element instanceof HTMLDetailsElement) element.open = true
    element.closest('.item')?.scrollIntoView({ block: 'center' })
  })
  let closed = []
  addEventListener('beforeprint', () => {
    closed = [...all()].filter((element) => !element.open)
    closed.forEach((element) => { element.open = true })
  })
  addEventListener('afterprint', () => closed.forEach((element) => { element.open = false }))
})()
